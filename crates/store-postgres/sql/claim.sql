SELECT j.seq, j.state, j.lease_version, j.place, j.due_at, j.timer, j.record, j.told, p.kind, p.bytes
FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
WHERE j.queue = $1 AND j.place IS NOT NULL AND (j.urgency, j.place) >= ($4, $5) AND j.seq <> ALL($3::bigint[])
    AND NOT EXISTS (SELECT FROM @.jobs e WHERE e.queue = $1 AND e.place IS NOT NULL AND e.urgency < $4)
ORDER BY j.queue, j.urgency, j.place LIMIT $2 FOR UPDATE OF j SKIP LOCKED
