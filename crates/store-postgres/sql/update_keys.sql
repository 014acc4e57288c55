WITH updated AS (
    UPDATE @.idempotency_keys k SET seq = u.seq, id = u.id, at = u.at, prune_at = u.prune_at
    FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[]) AS u(path, seq, id, at, prune_at, expected_seq)
    WHERE k.path = u.path AND k.seq = u.expected_seq RETURNING 1)
SELECT @.assert_row_count((SELECT count(*) FROM updated), $7)
