SELECT path, seq, id, at, prune_at FROM @.idempotency_keys WHERE path = ANY($1) FOR UPDATE
