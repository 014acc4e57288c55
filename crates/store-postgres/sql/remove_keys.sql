DELETE FROM @.keys WHERE path = ANY($1)
