SELECT a.seq, a.state, a.lease_version, a.record FROM @.archive a WHERE a.seq = ANY($1) ORDER BY a.seq FOR UPDATE
