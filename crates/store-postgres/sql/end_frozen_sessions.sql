-- Ends sessions of nodes that hold the lock of the schema and have long waited for their client.
SELECT pg_terminate_backend(activity.pid)
FROM pg_locks AS held
JOIN pg_stat_activity AS activity ON activity.pid = held.pid
WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (held.classid::bigint << 32 | held.objid::bigint) = $1
  AND activity.usename = current_user AND activity.application_name = 'longshore'
  AND activity.pid <> pg_backend_pid()
  AND activity.wait_event = 'ClientRead' AND activity.state_change < clock_timestamp() - $2 * interval '1 ms'
