SELECT seq FROM @.jobs WHERE queue = $1 AND state = $2 AND state <> 1 ORDER BY state, queue, seq LIMIT $3
