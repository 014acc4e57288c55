SELECT count(*) FROM (
    SELECT 1 FROM @.jobs WHERE queue = $1 AND place IS NOT NULL AND state = 1 AND urgency = ANY($2::smallint[]) AND place < $3 LIMIT $4) t
