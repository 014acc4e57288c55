SELECT seq FROM @.workflow_members WHERE workflow = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3
