INSERT INTO @.workflow_members (workflow, seq) SELECT * FROM unnest($1::bigint[], $2::bigint[])
