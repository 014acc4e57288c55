SELECT seq, record FROM @.jobs WHERE seq = ANY($1) UNION ALL SELECT seq, record FROM @.archive WHERE seq = ANY($1)
