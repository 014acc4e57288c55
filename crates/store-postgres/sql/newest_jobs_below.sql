SELECT u.below, x.seq, x.record FROM unnest($1::bigint[]) AS u(below) CROSS JOIN LATERAL (
    SELECT t.seq, t.record FROM (
        (SELECT j.seq, j.record FROM @.jobs j WHERE j.seq < u.below ORDER BY j.seq DESC LIMIT 1)
        UNION ALL (SELECT a.seq, a.record FROM @.archive a WHERE a.seq < u.below ORDER BY a.seq DESC LIMIT 1)) t
    ORDER BY t.seq DESC LIMIT 1) x
