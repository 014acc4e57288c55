SELECT seq, state, lease_version, place, due_at, timer, record, told, kind, bytes, line FROM @.claim_lines($1, $2, $3, $4, $5, $6, $7, $8)
