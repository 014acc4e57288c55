WITH written AS (
    INSERT INTO @.keys AS k (path, seq, id, at, purge_at)
    SELECT u.path, u.seq, u.id, u.at, u.purge_at FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[]) AS u(path, seq, id, at, purge_at)
    ORDER BY 1 ON CONFLICT (path) DO NOTHING RETURNING 1)
SELECT @.expect((SELECT count(*) FROM written), $6)
