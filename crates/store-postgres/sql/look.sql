SELECT j.seq, j.state, j.lease_version, j.place, j.due_at, j.timer, CASE WHEN octet_length(j.record) <= 4096 THEN j.record END, j.told, p.kind, CASE WHEN octet_length(p.bytes) <= 4096 THEN p.bytes END
FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
WHERE j.queue = $1 AND j.place IS NOT NULL AND (j.urgency, j.place) >= ($3, $4)
ORDER BY j.queue, j.urgency, j.place LIMIT $2
