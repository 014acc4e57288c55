DELETE FROM @.idempotency_keys WHERE path = ANY($1)
