DELETE FROM @.external_ids WHERE seq = ANY($3) AND (queue, external_id) IN (SELECT * FROM unnest($1::int[], $2::text[]))
