SELECT j.seq, j.due_at, j.timer, j.place, j.record FROM @.jobs j WHERE j.due_at IS NOT NULL ORDER BY j.due_at, j.timer, j.seq LIMIT $1
