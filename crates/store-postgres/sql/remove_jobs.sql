WITH live AS (DELETE FROM @.jobs WHERE seq = ANY($1) RETURNING 1), archived AS (DELETE FROM @.archive WHERE seq = ANY($1) RETURNING 1),
payload AS (DELETE FROM @.payloads WHERE seq = ANY($1)), edges AS (DELETE FROM @.dependency_edges WHERE dependency = ANY($1)),
ids AS (DELETE FROM @.imported_ids WHERE seq = ANY($1))
SELECT @.assert_row_count((SELECT count(*) FROM live) + (SELECT count(*) FROM archived), $2)
