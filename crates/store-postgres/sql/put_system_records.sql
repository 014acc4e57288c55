INSERT INTO @.system_records (kind, key, revision, value)
SELECT u.kind, u.key, nextval('@.system_revisions'), u.value FROM unnest($1::smallint[], $2::bytea[], $3::bytea[]) AS u(kind, key, value)
ORDER BY 1, 2 ON CONFLICT (kind, key) DO UPDATE SET revision = excluded.revision, value = excluded.value
