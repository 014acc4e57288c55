SELECT j.seq, j.state, j.lease_version, j.ready_position, j.due_at, j.timer_kind, j.record, j.propagation_cursor, p.kind,
    CASE WHEN octet_length(p.bytes) <= 65536 THEN p.bytes END, octet_length(p.bytes)
FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
WHERE j.queue = $1 AND j.ready_position IS NOT NULL AND j.seq <> ALL($3::bigint[]) AND j.type_hash = ANY($4::bigint[])
ORDER BY j.queue, j.effective_priority, j.ready_position LIMIT $2 FOR UPDATE OF j SKIP LOCKED
