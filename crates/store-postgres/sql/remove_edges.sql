DELETE FROM @.dependency_edges e USING unnest($1::bigint[], $2::bigint[]) AS u(dependency, dependent) WHERE e.dependency = u.dependency AND e.dependent = u.dependent
