WITH written AS (
    UPDATE @.jobs j SET record = u.record FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS u(seq, record, was_version)
    WHERE j.seq = u.seq AND j.state + 0 = 3 AND j.lease_version = u.was_version
    RETURNING 1)
SELECT @.expect((SELECT count(*) FROM written), $4)
