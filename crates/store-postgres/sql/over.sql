SELECT DISTINCT (ended_at / 86400000)::int FROM (SELECT ended_at FROM @.jobs WHERE state >= 5 AND state <> 1 AND over ORDER BY state, queue, seq LIMIT $1) t
