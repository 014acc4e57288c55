SELECT queue, state, sum(jobs)::bigint FROM (
    SELECT queue, state, jobs FROM @.counts WHERE queue = ANY($1)
    UNION ALL
    SELECT c.queue, (u.n - 1)::smallint, u.change FROM @.count_changes c, unnest(c.changes) WITH ORDINALITY AS u(change, n) WHERE c.queue = ANY($1)) t
GROUP BY queue, state
