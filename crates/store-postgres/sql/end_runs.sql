WITH written AS (
    UPDATE @.jobs j SET place = NULL, due_at = NULL, timer = NULL, told = NULL, state = u.state, ended_at = u.ended_at, prune_at = u.prune_at, over = u.over, record = u.record
    FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bigint[], $5::boolean[], $6::bytea[], $7::bigint[])
        AS u(seq, state, ended_at, prune_at, over, record, was_version)
    WHERE j.seq = u.seq AND j.state + 0 = 3 AND j.lease_version = u.was_version
    RETURNING 1)
SELECT @.expect((SELECT count(*) FROM written), $8)
