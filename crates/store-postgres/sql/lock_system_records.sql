SELECT r.kind, r.key, r.revision FROM @.system_records r
JOIN unnest($1::smallint[], $2::bytea[]) AS u(kind, key) ON r.kind = u.kind AND r.key = u.key
ORDER BY r.kind, r.key FOR UPDATE OF r
