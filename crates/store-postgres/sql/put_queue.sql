INSERT INTO @.queues (number, record, intake) VALUES ($1, $2, $3::text::jsonb)
ON CONFLICT (number) DO UPDATE SET record = excluded.record, intake = excluded.intake
