INSERT INTO @.queues (number, record) VALUES ($1, $2) ON CONFLICT (number) DO UPDATE SET record = excluded.record
