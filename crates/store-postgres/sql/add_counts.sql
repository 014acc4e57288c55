INSERT INTO @.count_changes (queue, changes) VALUES ($1, $2)
