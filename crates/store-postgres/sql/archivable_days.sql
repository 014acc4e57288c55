SELECT DISTINCT (ended_at / 86400000)::int FROM (
    SELECT ended_at FROM @.jobs WHERE state <> 1 AND archivable AND (state, queue, seq) > ($2, $3, $4) ORDER BY state, queue, seq LIMIT $1) t
