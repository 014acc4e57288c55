WITH gone AS (DELETE FROM @.archive WHERE seq = ANY($1) RETURNING seq, kind, bytes),
back AS (INSERT INTO @.payloads (seq, kind, bytes) SELECT seq, kind, bytes FROM gone RETURNING 1)
SELECT @.expect((SELECT count(*) FROM back), $2)
