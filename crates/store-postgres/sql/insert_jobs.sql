INSERT INTO @.jobs (seq, ready_position, due_at, type_hash, lease_version, enqueued_at, ended_at, prune_at, queue, state, effective_priority, priority, timer_kind, archivable, standalone, record, propagation_cursor)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::int[],
    $10::smallint[], $11::smallint[], $12::smallint[], $13::smallint[], $14::boolean[], $15::boolean[], $16::bytea[], $17::bigint[])
