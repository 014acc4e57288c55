SELECT version, id_secret, epoch, imported_ids, watched FROM @.settings
