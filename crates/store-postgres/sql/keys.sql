SELECT path, seq, id, at, purge_at FROM @.keys WHERE path = ANY($1) FOR UPDATE
