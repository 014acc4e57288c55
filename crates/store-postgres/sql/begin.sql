SELECT version, now_ms, first_seq FROM @.begin_transaction($1, $2, $3, $4)
