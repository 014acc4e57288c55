WITH written AS (
    UPDATE @.jobs j SET place = u.place, due_at = u.due_at, type = u.type, lease_version = u.lease_version, came_at = u.came_at, ended_at = u.ended_at,
        prune_at = u.prune_at, state = u.state, urgency = u.urgency, priority = u.priority, timer = u.timer, over = u.over, plain = u.plain, record = u.record, told = u.told
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::smallint[],
        $10::smallint[], $11::smallint[], $12::smallint[], $13::boolean[], $14::boolean[], $15::bytea[], $16::smallint[], $17::bigint[], $18::bigint[])
        AS u(seq, place, due_at, type, lease_version, came_at, ended_at, prune_at, state, urgency, priority, timer, over, plain, record, was, was_version, told)
    WHERE j.seq = u.seq AND j.state = u.was AND j.lease_version = u.was_version
    RETURNING 1)
SELECT @.expect((SELECT count(*) FROM written), $19)
