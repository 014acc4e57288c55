WITH inserted AS (
    INSERT INTO @.idempotency_keys AS k (path, seq, id, at, prune_at)
    SELECT u.path, u.seq, u.id, u.at, u.prune_at FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[]) AS u(path, seq, id, at, prune_at)
    ORDER BY 1 ON CONFLICT (path) DO NOTHING RETURNING 1)
SELECT @.assert_row_count((SELECT count(*) FROM inserted), $6)
