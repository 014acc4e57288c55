WITH live AS (DELETE FROM @.jobs WHERE seq = ANY($1) RETURNING 1), old AS (DELETE FROM @.archive WHERE seq = ANY($1) RETURNING 1),
payload AS (DELETE FROM @.payloads WHERE seq = ANY($1)), outgoing AS (DELETE FROM @.edges WHERE dependency = ANY($1)),
named AS (DELETE FROM @.foreign_ids WHERE seq = ANY($1))
SELECT @.expect((SELECT count(*) FROM live) + (SELECT count(*) FROM old), $2)
