INSERT INTO @.queues (number, record, admission) VALUES ($1, $2, $3::text::jsonb)
ON CONFLICT (number) DO UPDATE SET record = excluded.record, admission = excluded.admission
