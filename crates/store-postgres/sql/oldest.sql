SELECT q, came.at, fresh.seq, fresh.record FROM unnest($1::int[]) q
LEFT JOIN LATERAL (SELECT j.came_at AS at FROM @.jobs j WHERE j.queue = q AND j.came_at IS NOT NULL ORDER BY j.queue, j.came_at LIMIT 1) came ON true
LEFT JOIN LATERAL (
    SELECT x.seq, x.record FROM generate_series(0, 4) u CROSS JOIN LATERAL (
        SELECT j.seq, j.record FROM @.jobs j
        WHERE j.queue = q AND j.urgency = u AND j.place IS NOT NULL AND j.state = 1 AND j.came_at IS NULL
        ORDER BY j.queue, j.urgency, j.place LIMIT 1) x) fresh ON true
