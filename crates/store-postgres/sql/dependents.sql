SELECT dependent FROM @.dependency_edges WHERE dependency = $1 AND dependent > $2 ORDER BY dependent LIMIT $3
