WITH updated AS (
    UPDATE @.workflows w SET revision = w.revision + 1, open = u.open, operation_active = u.operation_active, record = u.record
    FROM unnest($1::bigint[], $2::boolean[], $3::boolean[], $4::bytea[], $5::bigint[]) AS u(number, open, operation_active, record, expected_revision)
    WHERE w.number = u.number AND w.revision = u.expected_revision
    RETURNING 1)
SELECT @.assert_row_count((SELECT count(*) FROM updated), $6)
