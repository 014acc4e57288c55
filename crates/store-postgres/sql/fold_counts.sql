WITH gone AS (
    DELETE FROM @.count_changes WHERE ctid = ANY(ARRAY(SELECT ctid FROM @.count_changes LIMIT 20000)) AND pg_try_advisory_xact_lock($1)
    RETURNING queue, changes),
sums AS (
    SELECT g.queue, (u.n - 1)::smallint AS state, sum(u.change)::bigint AS jobs FROM gone g, unnest(g.changes) WITH ORDINALITY AS u(change, n)
    WHERE u.change <> 0 GROUP BY 1, 2 ORDER BY 1, 2)
INSERT INTO @.counts AS c (queue, state, jobs) SELECT queue, state, jobs FROM sums
ON CONFLICT (queue, state) DO UPDATE SET jobs = c.jobs + excluded.jobs
