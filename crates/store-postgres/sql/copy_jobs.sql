COPY @.jobs (seq, place, due_at, type, lease_version, came_at, ended_at, prune_at, queue, state, urgency, priority, timer, over, plain, record, told) FROM STDIN (FORMAT binary)
