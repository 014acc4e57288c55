WITH deleted AS (
    DELETE FROM @.workflow_members m USING unnest($1::bigint[], $3::bigint[]) AS u(workflow, seq) WHERE m.workflow = u.workflow AND m.seq = u.seq)
DELETE FROM @.workflow_member_refs m USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS u(workflow, name, seq)
WHERE m.workflow = u.workflow AND m.name = u.name AND m.seq = u.seq
