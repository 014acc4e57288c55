SELECT path, seq, id, at, prune_at FROM @.idempotency_keys WHERE prune_at <= $1 ORDER BY prune_at, path LIMIT $2 FOR UPDATE SKIP LOCKED
