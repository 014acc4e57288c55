WITH updated AS (
    UPDATE @.jobs j SET ready_position = u.ready_position, due_at = u.due_at, type_hash = u.type_hash, lease_version = u.lease_version,
        enqueued_at = u.enqueued_at, ended_at = u.ended_at, prune_at = u.prune_at, state = u.state, effective_priority = u.effective_priority,
        priority = u.priority, timer_kind = u.timer_kind, archivable = u.archivable, standalone = u.standalone, record = u.record,
        propagation_cursor = u.propagation_cursor
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::smallint[],
        $10::smallint[], $11::smallint[], $12::smallint[], $13::boolean[], $14::boolean[], $15::bytea[], $16::smallint[], $17::bigint[], $18::bigint[])
        AS u(seq, ready_position, due_at, type_hash, lease_version, enqueued_at, ended_at, prune_at, state, effective_priority, priority, timer_kind,
            archivable, standalone, record, expected_state, expected_version, propagation_cursor)
    WHERE j.seq = u.seq AND j.state = u.expected_state AND j.lease_version = u.expected_version
    RETURNING 1)
SELECT @.assert_row_count((SELECT count(*) FROM updated), $19)
