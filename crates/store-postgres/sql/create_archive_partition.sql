SELECT @.create_archive_partition($1)
