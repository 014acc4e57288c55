WITH deleted AS (DELETE FROM @.archive WHERE seq = ANY($1) RETURNING seq, kind, bytes),
restored AS (INSERT INTO @.payloads (seq, kind, bytes) SELECT seq, kind, bytes FROM deleted RETURNING 1)
SELECT @.assert_row_count((SELECT count(*) FROM restored), $2)
