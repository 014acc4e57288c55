SELECT key, revision, value FROM @.system_records
WHERE kind = $1 AND key >= $2 AND ($3::bytea IS NULL OR key < $3) ORDER BY key DESC LIMIT $4
