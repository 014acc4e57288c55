INSERT INTO @.system_records (kind, key, revision, value)
SELECT u.kind, u.key, $4, u.value FROM unnest($1::smallint[], $2::bytea[], $3::bytea[]) AS u(kind, key, value) ORDER BY 1, 2
