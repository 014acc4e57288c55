SELECT @.append_event($1)
