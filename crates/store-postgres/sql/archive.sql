WITH chosen AS MATERIALIZED (
    SELECT j.seq, p.kind, p.bytes FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
    WHERE j.state >= 5 AND j.state <> 1 AND j.over AND (j.ended_at / 86400000)::int = ANY($2)
    ORDER BY j.state, j.queue, j.seq LIMIT $1 FOR UPDATE OF j SKIP LOCKED),
gone AS (DELETE FROM @.jobs j USING chosen c WHERE j.seq = c.seq
    RETURNING j.seq, (j.ended_at / 86400000)::int AS day, j.type, j.lease_version, j.prune_at, j.queue, j.state, j.priority, j.plain, c.kind, j.record, c.bytes),
paid AS (DELETE FROM @.payloads p USING chosen c WHERE p.seq = c.seq RETURNING 1),
kept AS (INSERT INTO @.archive (seq, day, type, lease_version, prune_at, queue, state, priority, plain, kind, record, bytes) SELECT * FROM gone RETURNING 1)
SELECT count(*), @.expect((SELECT count(*) FROM paid), (SELECT count(*) FROM kept)) FROM kept
