INSERT INTO @.dependency_edges (dependency, dependent) SELECT * FROM unnest($1::bigint[], $2::bigint[]) ON CONFLICT DO NOTHING
