UPDATE @.settings SET watched_until = greatest(watched_until, floor(extract(epoch FROM clock_timestamp()) * 1000) + $1) WHERE watched RETURNING true
