SELECT a.seq, a.state, a.lease_version, a.record FROM @.archive a WHERE a.prune_at <= $1 ORDER BY a.prune_at, a.seq LIMIT $2 FOR UPDATE SKIP LOCKED
