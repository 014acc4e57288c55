UPDATE @.settings SET version = version + 1
