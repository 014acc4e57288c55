WITH off AS (
    UPDATE @.settings SET version = version + 1, watched = false WHERE watched AND watched_until < floor(extract(epoch FROM clock_timestamp()) * 1000)
    RETURNING true)
DELETE FROM @.events WHERE (SELECT true FROM off)
