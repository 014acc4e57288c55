SELECT @.drop_day($1)
