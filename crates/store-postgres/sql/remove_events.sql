DELETE FROM @.events WHERE at < floor(extract(epoch FROM clock_timestamp()) * 1000) - $1
