INSERT INTO @.worker_directives (name, directive) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET directive = excluded.directive
