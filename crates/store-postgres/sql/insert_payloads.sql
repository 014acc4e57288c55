INSERT INTO @.payloads (seq, kind, bytes) SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bytea[])
