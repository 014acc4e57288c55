SELECT @.mark_claimed($1, $2, $3, $4, $5, $6, NULL)
