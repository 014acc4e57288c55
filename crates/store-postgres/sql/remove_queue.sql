DELETE FROM @.queues WHERE number = $1
