SELECT number, value FROM @.policies WHERE number >= $1 ORDER BY number
