UPDATE @.settings SET version = version + CASE WHEN watched THEN 0 ELSE 1 END, watched = true,
    watched_until = floor(extract(epoch FROM clock_timestamp()) * 1000) + $1
