SELECT q, enqueued.at, unmoved.seq, unmoved.record FROM unnest($1::int[]) q
LEFT JOIN LATERAL (SELECT j.enqueued_at AS at FROM @.jobs j WHERE j.queue = q AND j.enqueued_at IS NOT NULL ORDER BY j.queue, j.enqueued_at LIMIT 1) enqueued ON true
LEFT JOIN LATERAL (
    SELECT x.seq, x.record FROM generate_series(0, 4) u CROSS JOIN LATERAL (
        SELECT j.seq, j.record FROM @.jobs j
        WHERE j.queue = q AND j.effective_priority = u AND j.ready_position IS NOT NULL AND j.state = 1 AND j.enqueued_at IS NULL
        ORDER BY j.queue, j.effective_priority, j.ready_position LIMIT 1) x) unmoved ON true
