SELECT EXISTS (SELECT 1 FROM @.workflows WHERE operation_active)
