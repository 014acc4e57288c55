SELECT j.seq, j.state, j.lease_version, j.ready_position, j.due_at, j.timer_kind, j.record, j.propagation_cursor FROM @.jobs j WHERE j.seq = ANY($1) ORDER BY j.seq FOR UPDATE
