SELECT seq FROM @.tags WHERE term = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3
