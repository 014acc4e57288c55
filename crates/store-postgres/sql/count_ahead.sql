SELECT count(*) FROM (
    SELECT 1 FROM @.jobs WHERE queue = $1 AND ready_position IS NOT NULL AND state = 1 AND effective_priority = ANY($2::smallint[]) AND ready_position < $3 LIMIT $4) t
