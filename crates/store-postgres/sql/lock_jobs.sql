SELECT j.seq, j.state, j.lease_version, j.place, j.due_at, j.timer, j.record, j.told FROM @.jobs j WHERE j.seq = ANY($1) ORDER BY j.seq FOR UPDATE
