SELECT name, version, types, queues, running, last_seen_at, reported_at FROM @.workers
WHERE node <> $1 AND last_seen_at >= $2 ORDER BY last_seen_at DESC LIMIT $3
