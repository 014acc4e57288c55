SELECT queue, state, sum(jobs)::bigint FROM (
    SELECT queue, state, jobs FROM @.queue_counts
    UNION ALL
    SELECT c.queue, (u.n - 1)::smallint, u.delta FROM @.queue_count_deltas c, unnest(c.deltas) WITH ORDINALITY AS u(delta, n)) t
GROUP BY queue, state
