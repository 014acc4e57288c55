SELECT seq FROM @.tags WHERE word = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3
