SELECT number, revision, counts, record FROM @.workflows WHERE state = $3 AND number < $1 ORDER BY state DESC, number DESC LIMIT $2
