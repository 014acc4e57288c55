DELETE FROM @.worker_directives WHERE name = $1
