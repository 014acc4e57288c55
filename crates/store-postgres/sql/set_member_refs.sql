INSERT INTO @.workflow_member_refs (workflow, name, seq) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[])
ON CONFLICT (workflow, name) DO UPDATE SET seq = excluded.seq
