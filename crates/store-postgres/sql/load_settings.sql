SELECT version, id_secret, epoch, imported_ids FROM @.settings
