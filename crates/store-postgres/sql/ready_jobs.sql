SELECT seq FROM @.jobs WHERE queue = $1 AND ready_position IS NOT NULL AND state = 1 ORDER BY seq LIMIT $2
