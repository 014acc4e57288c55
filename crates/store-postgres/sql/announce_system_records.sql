INSERT INTO @.system_versions AS v (kind, version) SELECT kind, 1 FROM unnest($1::smallint[]) AS u(kind) ORDER BY 1
ON CONFLICT (kind) DO UPDATE SET version = v.version + 1
