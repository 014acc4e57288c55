WITH chosen AS MATERIALIZED (
    SELECT j.seq, p.kind, p.bytes FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
    WHERE j.state <> 1 AND j.over AND (j.state, j.queue, j.seq) > ($3, $4, $5) AND (j.ended_at / 86400000)::int = ANY($2)
    ORDER BY j.state, j.queue, j.seq LIMIT $1 FOR UPDATE OF j SKIP LOCKED),
gone AS (DELETE FROM @.jobs j USING chosen c WHERE j.seq = c.seq
    RETURNING j.seq, (j.ended_at / 86400000)::int AS day, j.type, j.lease_version, j.prune_at, j.queue, j.state, j.priority, j.plain, c.kind, j.record, c.bytes),
paid AS (DELETE FROM @.payloads p USING chosen c WHERE p.seq = c.seq RETURNING 1),
kept AS (INSERT INTO @.archive (seq, day, type, lease_version, prune_at, queue, state, priority, plain, kind, record, bytes) SELECT * FROM gone RETURNING 1),
last AS (SELECT g.state, g.queue, g.seq FROM gone g ORDER BY g.state DESC, g.queue DESC, g.seq DESC LIMIT 1)
SELECT k.number, @.expect((SELECT count(*) FROM paid), k.number), l.state, l.queue, l.seq
FROM (SELECT count(*) AS number FROM kept) k LEFT JOIN last l ON true
