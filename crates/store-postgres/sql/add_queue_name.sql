INSERT INTO @.queue_names (number, name) VALUES ($1, $2)
