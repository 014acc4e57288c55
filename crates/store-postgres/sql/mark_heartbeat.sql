SELECT @.mark_heartbeat($1, $2, $3, NULL)
