SELECT @.drop_archive_partitions($1)
