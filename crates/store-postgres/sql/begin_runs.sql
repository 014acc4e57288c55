WITH written AS (
    UPDATE @.jobs j SET place = NULL, came_at = NULL, state = 3, due_at = u.due_at, timer = u.timer, lease_version = u.lease_version, record = u.record
    FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bytea[], $6::bigint[]) AS u(seq, due_at, timer, lease_version, record, was_version)
    WHERE j.seq = u.seq AND j.state = 1 AND j.lease_version = u.was_version
    RETURNING 1)
SELECT @.expect((SELECT count(*) FROM written), $7)
