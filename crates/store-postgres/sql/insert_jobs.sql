INSERT INTO @.jobs (seq, place, due_at, type, lease_version, came_at, ended_at, prune_at, queue, state, urgency, priority, timer, over, plain, record, told)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::int[],
    $10::smallint[], $11::smallint[], $12::smallint[], $13::smallint[], $14::boolean[], $15::boolean[], $16::bytea[], $17::bigint[])
