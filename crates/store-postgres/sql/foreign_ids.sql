SELECT id, seq FROM @.foreign_ids WHERE id = ANY($1)
