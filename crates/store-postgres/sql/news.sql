SELECT j.seq, j.state, j.lease_version, j.place, j.due_at, j.timer, j.record, j.told FROM @.jobs j
WHERE j.timer = 5 ORDER BY j.due_at, j.seq LIMIT $1 FOR UPDATE
