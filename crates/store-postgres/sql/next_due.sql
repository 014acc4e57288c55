SELECT j.seq, j.due_at, j.timer_kind, j.ready_position, j.record FROM @.jobs j WHERE j.due_at IS NOT NULL ORDER BY j.due_at, j.timer_kind, j.seq LIMIT $1
