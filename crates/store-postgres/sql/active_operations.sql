SELECT number, revision, counts, record FROM @.workflows WHERE operation_active AND pg_try_advisory_xact_lock($1) ORDER BY number LIMIT $2
