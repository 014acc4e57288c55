WITH written AS (
    UPDATE @.keys k SET seq = u.seq, id = u.id, at = u.at, purge_at = u.purge_at
    FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[]) AS u(path, seq, id, at, purge_at, was)
    WHERE k.path = u.path AND k.seq = u.was RETURNING 1)
SELECT @.expect((SELECT count(*) FROM written), $7)
