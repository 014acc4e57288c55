SELECT s.snapshot, e.body FROM (SELECT pg_current_snapshot()::text AS snapshot) s
LEFT JOIN (SELECT id, body FROM @.events WHERE xid >= pg_snapshot_xmin($1::text::pg_snapshot) AND NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot)) e ON true
ORDER BY e.id
