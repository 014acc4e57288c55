INSERT INTO @.queue_count_deltas (queue, deltas) VALUES ($1, $2)
