SELECT min(at) FROM (
    (SELECT prune_at + $1 AS at FROM @.archive WHERE prune_at IS NOT NULL ORDER BY prune_at LIMIT 1)
    UNION ALL (SELECT prune_at FROM @.idempotency_keys WHERE prune_at IS NOT NULL ORDER BY prune_at LIMIT 1)) t
