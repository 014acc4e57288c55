SELECT version, now_ms, first_number FROM @.open_turn($1, $2, $3, $4)
