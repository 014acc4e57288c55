WITH inserted AS (
    INSERT INTO @.external_ids (queue, external_id, seq) SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[]) AS u(queue, external_id, seq)
    ORDER BY 1, 2 ON CONFLICT DO NOTHING RETURNING 1)
SELECT @.assert_row_count((SELECT count(*) FROM inserted), $4)
