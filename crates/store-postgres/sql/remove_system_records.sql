DELETE FROM @.system_records r USING unnest($1::smallint[], $2::bytea[]) AS u(kind, key)
WHERE r.kind = u.kind AND r.key = u.key
