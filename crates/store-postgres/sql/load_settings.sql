SELECT version, id_secret, epoch, foreign_ids FROM @.settings
