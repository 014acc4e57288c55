SELECT seq, state, lease_version, ready_position, due_at, timer_kind, record, propagation_cursor, kind, bytes, queue_index FROM @.claim_queues($1, $2, $3, $4, $5, $6, $7, $8)
