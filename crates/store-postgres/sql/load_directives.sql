SELECT name, directive FROM @.worker_directives
