WITH chosen AS (
    SELECT seq FROM @.jobs WHERE state >= 5 AND state <> 1 AND over AND (ended_at / 86400000)::int = ANY($2) ORDER BY state, queue, seq LIMIT $1 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM @.jobs j USING chosen c WHERE j.seq = c.seq
    RETURNING j.seq, (j.ended_at / 86400000)::int AS day, j.type, j.lease_version, j.prune_at, j.queue, j.state, j.priority, j.plain, j.record),
paid AS (DELETE FROM @.payloads p USING chosen c WHERE p.seq = c.seq RETURNING p.seq, p.kind, p.bytes),
kept AS (INSERT INTO @.archive (seq, day, type, lease_version, prune_at, queue, state, priority, plain, kind, record, bytes)
    SELECT g.seq, g.day, g.type, g.lease_version, g.prune_at, g.queue, g.state, g.priority, g.plain, p.kind, g.record, p.bytes
    FROM gone g JOIN paid p ON p.seq = g.seq RETURNING 1)
SELECT count(*), @.expect((SELECT count(*) FROM gone), (SELECT count(*) FROM kept)) FROM kept
