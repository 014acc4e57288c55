SELECT seq, type_hash, priority FROM (
    (SELECT seq, type_hash, priority FROM @.jobs WHERE seq < $1 ORDER BY seq DESC LIMIT $2)
    UNION ALL (SELECT seq, type_hash, priority FROM @.archive WHERE seq < $1 ORDER BY seq DESC LIMIT $2)) t
ORDER BY seq DESC LIMIT $2
