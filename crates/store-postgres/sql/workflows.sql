SELECT number, revision, counts, record FROM @.workflows WHERE number = ANY($1)
