UPDATE @.system_records r SET revision = $4, value = u.value
FROM unnest($1::smallint[], $2::bytea[], $3::bytea[]) AS u(kind, key, value) WHERE r.kind = u.kind AND r.key = u.key
