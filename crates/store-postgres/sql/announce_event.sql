INSERT INTO @.events (body) SELECT $1 FROM @.settings WHERE watched
