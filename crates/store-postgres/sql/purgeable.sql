SELECT path, seq, id, at, purge_at FROM @.keys WHERE purge_at <= $1 ORDER BY purge_at, path LIMIT $2 FOR UPDATE SKIP LOCKED
