INSERT INTO @.payloads (seq, kind, bytes) SELECT $1, kind, bytes FROM (
    SELECT kind, bytes FROM @.payloads WHERE seq = $2 UNION ALL SELECT kind, bytes FROM @.archive WHERE seq = $2) t LIMIT 1
