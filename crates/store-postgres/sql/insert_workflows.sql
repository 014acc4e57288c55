INSERT INTO @.workflows (number, open, operation_active, record) SELECT * FROM unnest($1::bigint[], $2::boolean[], $3::boolean[], $4::bytea[])
