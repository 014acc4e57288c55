SELECT seq, state, lease_version, ready_position, due_at, timer_kind, record, propagation_cursor, kind,
    CASE WHEN octet_length(bytes) <= 65536 THEN bytes END, octet_length(bytes), queue_index FROM @.claim_queues($1, $2, $3, $4, $5, $6, $7, $8)
