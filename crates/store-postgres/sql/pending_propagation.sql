SELECT j.seq, j.state, j.lease_version, j.ready_position, j.due_at, j.timer_kind, j.record, j.propagation_cursor FROM @.jobs j
WHERE j.timer_kind = 5 ORDER BY j.due_at, j.seq LIMIT $1 FOR UPDATE
