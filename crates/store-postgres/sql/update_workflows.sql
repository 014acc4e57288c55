WITH written AS (
    UPDATE @.workflows w SET revision = w.revision + 1, open = u.open, errand = u.errand, record = u.record
    FROM unnest($1::bigint[], $2::boolean[], $3::boolean[], $4::bytea[], $5::bigint[]) AS u(number, open, errand, record, was)
    WHERE w.number = u.number AND w.revision = u.was
    RETURNING 1)
SELECT @.expect((SELECT count(*) FROM written), $6)
