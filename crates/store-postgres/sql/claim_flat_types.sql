SELECT j.seq, j.state, j.lease_version, j.place, j.due_at, j.timer, j.record, j.told, p.kind, p.bytes
FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
WHERE j.place IS NOT NULL AND j.seq = ANY(ARRAY(
    SELECT seq FROM (
        (SELECT h.seq, h.place FROM @.jobs h WHERE h.queue = $1 AND h.urgency = 0 AND h.place IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type = ANY($4::bigint[]) ORDER BY h.queue, h.urgency, h.place LIMIT $5)
        UNION ALL (SELECT h.seq, h.place FROM @.jobs h WHERE h.queue = $1 AND h.urgency = 1 AND h.place IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type = ANY($4::bigint[]) ORDER BY h.queue, h.urgency, h.place LIMIT $5)
        UNION ALL (SELECT h.seq, h.place FROM @.jobs h WHERE h.queue = $1 AND h.urgency = 2 AND h.place IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type = ANY($4::bigint[]) ORDER BY h.queue, h.urgency, h.place LIMIT $5)
        UNION ALL (SELECT h.seq, h.place FROM @.jobs h WHERE h.queue = $1 AND h.urgency = 3 AND h.place IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type = ANY($4::bigint[]) ORDER BY h.queue, h.urgency, h.place LIMIT $5)
        UNION ALL (SELECT h.seq, h.place FROM @.jobs h WHERE h.queue = $1 AND h.urgency = 4 AND h.place IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type = ANY($4::bigint[]) ORDER BY h.queue, h.urgency, h.place LIMIT $5)
    ) heads ORDER BY place LIMIT $5))
ORDER BY j.place LIMIT $2 FOR UPDATE OF j SKIP LOCKED
