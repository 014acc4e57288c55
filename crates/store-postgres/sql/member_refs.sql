SELECT m.workflow, m.name, m.seq FROM unnest($1::bigint[], $2::text[]) AS u(workflow, name) JOIN @.workflow_member_refs m USING (workflow, name)
