WITH pairs AS MATERIALIZED (SELECT s, q FROM unnest($1::smallint[]) s, unnest($2::int[]) q),
levels AS MATERIALIZED (SELECT q, u FROM unnest($2::int[]) q, generate_series(0, 4) u WHERE 1 = ANY($1::smallint[]))
SELECT seq, type_hash, priority FROM (
    SELECT x.* FROM pairs p CROSS JOIN LATERAL (
        SELECT j.seq, j.type_hash, j.priority FROM @.jobs j WHERE j.state = p.s AND j.state <> 1 AND j.queue = p.q AND j.seq < $3
        ORDER BY j.state DESC, j.queue DESC, j.seq DESC LIMIT $4) x
    UNION ALL
    SELECT x.* FROM pairs p CROSS JOIN LATERAL (
        SELECT a.seq, a.type_hash, a.priority FROM @.archive a WHERE a.state = p.s AND a.queue = p.q AND a.seq < $3
        ORDER BY a.state DESC, a.queue DESC, a.seq DESC LIMIT $4) x WHERE p.s >= 5
    UNION ALL
    SELECT x.* FROM levels l CROSS JOIN LATERAL (
        SELECT j.seq, j.type_hash, j.priority FROM @.jobs j
        WHERE j.queue = l.q AND j.effective_priority = l.u AND j.ready_position IS NOT NULL AND j.ready_position < $3 AND j.ready_position = j.seq AND j.state = 1
        ORDER BY j.queue DESC, j.effective_priority DESC, j.ready_position DESC LIMIT $4) x
    UNION ALL
    SELECT x.* FROM levels l CROSS JOIN LATERAL (
        SELECT j.seq, j.type_hash, j.priority FROM @.jobs j
        WHERE j.queue = l.q AND j.ready_position IS NOT NULL AND j.ready_position <> j.seq AND j.seq < $3 AND j.state = 1
        ORDER BY j.queue DESC, j.seq DESC LIMIT $4) x WHERE l.u = 0) t
ORDER BY seq DESC LIMIT $4
