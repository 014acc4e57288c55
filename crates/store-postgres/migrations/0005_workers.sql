-- Directives of workers, other than `run`. Every node reads them once a second.
CREATE TABLE @.worker_directives (
    name text PRIMARY KEY,
    directive text NOT NULL CHECK (directive IN ('quiet', 'stop'))
);

-- What each node has seen of workers, in milliseconds since the Unix epoch. Rows that were not
-- renewed for a day are deleted.
CREATE TABLE @.workers (
    name text NOT NULL,
    node text NOT NULL,
    version text,
    types text[] NOT NULL,
    queues text[] NOT NULL,
    running bigint NOT NULL,
    last_seen_at bigint NOT NULL,
    reported_at bigint NOT NULL,
    PRIMARY KEY (name, node)
);
CREATE INDEX workers_by_last_seen ON @.workers (last_seen_at);
