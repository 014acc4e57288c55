INSERT INTO @.workers (name, node, version, types, queues, running, last_seen_at, reported_at)
SELECT r.name, $1, r.version, string_to_array(r.types, E'\n'), string_to_array(r.queues, E'\n'), r.running, r.last_seen_at, $8
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
    AS r (name, version, types, queues, running, last_seen_at)
ON CONFLICT (name, node) DO UPDATE SET version = excluded.version, types = excluded.types, queues = excluded.queues,
    running = excluded.running, last_seen_at = excluded.last_seen_at, reported_at = excluded.reported_at
