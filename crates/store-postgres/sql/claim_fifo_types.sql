SELECT j.seq, j.state, j.lease_version, j.ready_position, j.due_at, j.timer_kind, j.record, j.propagation_cursor, p.kind,
    CASE WHEN octet_length(p.bytes) <= 65536 THEN p.bytes END, octet_length(p.bytes)
FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
WHERE j.ready_position IS NOT NULL AND j.seq = ANY(ARRAY(
    SELECT seq FROM (
        (SELECT h.seq, h.ready_position FROM @.jobs h WHERE h.queue = $1 AND h.effective_priority = 0 AND h.ready_position IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type_hash = ANY($4::bigint[]) ORDER BY h.queue, h.effective_priority, h.ready_position LIMIT $5)
        UNION ALL (SELECT h.seq, h.ready_position FROM @.jobs h WHERE h.queue = $1 AND h.effective_priority = 1 AND h.ready_position IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type_hash = ANY($4::bigint[]) ORDER BY h.queue, h.effective_priority, h.ready_position LIMIT $5)
        UNION ALL (SELECT h.seq, h.ready_position FROM @.jobs h WHERE h.queue = $1 AND h.effective_priority = 2 AND h.ready_position IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type_hash = ANY($4::bigint[]) ORDER BY h.queue, h.effective_priority, h.ready_position LIMIT $5)
        UNION ALL (SELECT h.seq, h.ready_position FROM @.jobs h WHERE h.queue = $1 AND h.effective_priority = 3 AND h.ready_position IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type_hash = ANY($4::bigint[]) ORDER BY h.queue, h.effective_priority, h.ready_position LIMIT $5)
        UNION ALL (SELECT h.seq, h.ready_position FROM @.jobs h WHERE h.queue = $1 AND h.effective_priority = 4 AND h.ready_position IS NOT NULL AND h.seq <> ALL($3::bigint[]) AND h.type_hash = ANY($4::bigint[]) ORDER BY h.queue, h.effective_priority, h.ready_position LIMIT $5)
    ) heads ORDER BY ready_position LIMIT $5))
ORDER BY j.ready_position LIMIT $2 FOR UPDATE OF j SKIP LOCKED
