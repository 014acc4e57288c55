SELECT version FROM @.system_versions WHERE kind = $1
