WITH gone AS (DELETE FROM @.workflows WHERE number = ANY($1) AND NOT open AND counts[10] = 0 RETURNING number),
unlisted AS (DELETE FROM @.members m USING gone g WHERE m.workflow = g.number),
unnamed AS (DELETE FROM @.member_names m USING gone g WHERE m.workflow = g.number),
freed AS (DELETE FROM @.foreign_ids f USING gone g WHERE f.seq = g.number)
SELECT count(*) FROM gone
