SELECT id, seq FROM @.imported_ids WHERE id = ANY($1)
