WITH deleted AS (DELETE FROM @.workflows WHERE number = ANY($1) AND NOT open AND counts[10] = 0 RETURNING number),
deleted_members AS (DELETE FROM @.workflow_members m USING deleted d WHERE m.workflow = d.number),
deleted_refs AS (DELETE FROM @.workflow_member_refs m USING deleted d WHERE m.workflow = d.number),
deleted_ids AS (DELETE FROM @.imported_ids f USING deleted d WHERE f.seq = d.number)
SELECT count(*) FROM deleted
