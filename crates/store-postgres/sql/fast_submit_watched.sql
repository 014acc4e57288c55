SELECT f.applied, f.now_ms, f.block, CASE WHEN f.applied THEN @.append_event($19) END FROM @.fast_submit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) f
