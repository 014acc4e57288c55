INSERT INTO @.policies (number, value) VALUES ($1, $2)
