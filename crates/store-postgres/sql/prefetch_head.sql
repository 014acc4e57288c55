SELECT seq, state, lease_version, ready_position, due_at, timer_kind, record, propagation_cursor, kind, bytes FROM @.prefetch_head($1, $3, $4, $2)
