SELECT seq, kind, bytes FROM @.payloads WHERE seq = ANY($1) UNION ALL SELECT seq, kind, bytes FROM @.archive WHERE seq = ANY($1)
