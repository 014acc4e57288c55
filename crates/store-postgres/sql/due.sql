SELECT j.seq, j.state, j.lease_version, j.place, j.due_at, j.timer, j.record, j.told FROM @.jobs j
WHERE j.due_at <= $1 ORDER BY j.due_at, j.timer, j.seq LIMIT $2 FOR UPDATE SKIP LOCKED
