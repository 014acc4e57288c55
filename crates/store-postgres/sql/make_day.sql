SELECT @.make_day($1)
