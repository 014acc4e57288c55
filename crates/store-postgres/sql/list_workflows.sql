SELECT number, revision, counts, record FROM @.workflows WHERE number < $1 ORDER BY number DESC LIMIT $2
