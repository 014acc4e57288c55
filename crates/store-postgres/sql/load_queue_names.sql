SELECT number, name FROM @.queue_names WHERE number >= $1 ORDER BY number
