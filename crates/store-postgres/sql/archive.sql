WITH chosen AS MATERIALIZED (
    SELECT j.seq, p.kind, p.bytes FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
    WHERE j.state <> 1 AND j.archivable AND (j.state, j.queue, j.seq) > ($3, $4, $5) AND (j.ended_at / 86400000)::int = ANY($2)
    ORDER BY j.state, j.queue, j.seq LIMIT $1 FOR UPDATE OF j SKIP LOCKED),
deleted AS (DELETE FROM @.jobs j USING chosen c WHERE j.seq = c.seq
    RETURNING j.seq, (j.ended_at / 86400000)::int AS day, j.type_hash, j.lease_version, j.prune_at, j.queue, j.state, j.priority, j.standalone, c.kind, j.record, c.bytes),
deleted_payloads AS (DELETE FROM @.payloads p USING chosen c WHERE p.seq = c.seq RETURNING 1),
archived AS (INSERT INTO @.archive (seq, day, type_hash, lease_version, prune_at, queue, state, priority, standalone, kind, record, bytes) SELECT * FROM deleted RETURNING 1),
last AS (SELECT d.state, d.queue, d.seq FROM deleted d ORDER BY d.state DESC, d.queue DESC, d.seq DESC LIMIT 1)
SELECT a.jobs, @.assert_row_count((SELECT count(*) FROM deleted_payloads), a.jobs), l.state, l.queue, l.seq
FROM (SELECT count(*) AS jobs FROM archived) a LEFT JOIN last l ON true
