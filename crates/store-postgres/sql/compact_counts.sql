WITH compacted AS (
    DELETE FROM @.queue_count_deltas WHERE ctid = ANY(ARRAY(SELECT ctid FROM @.queue_count_deltas LIMIT 20000)) AND pg_try_advisory_xact_lock($1)
    RETURNING queue, deltas),
sums AS (
    SELECT d.queue, (u.n - 1)::smallint AS state, sum(u.delta)::bigint AS jobs FROM compacted d, unnest(d.deltas) WITH ORDINALITY AS u(delta, n)
    WHERE u.delta <> 0 GROUP BY 1, 2 ORDER BY 1, 2)
INSERT INTO @.queue_counts AS c (queue, state, jobs) SELECT queue, state, jobs FROM sums
ON CONFLICT (queue, state) DO UPDATE SET jobs = c.jobs + excluded.jobs
