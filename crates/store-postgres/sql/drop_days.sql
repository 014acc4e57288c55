SELECT @.drop_days($1)
