SELECT seq FROM @.external_ids WHERE queue = ANY($1) AND external_id = $2 AND seq < $3 ORDER BY seq DESC
