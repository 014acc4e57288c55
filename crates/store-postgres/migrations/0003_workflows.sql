-- Jobs that are looked at as one.

-- The record has what people said of it and what is being done to its members; how many of these are where is kept beside it, because it changes with
-- every one of them, and changes only add up.
CREATE TABLE @.workflows (
    number bigint PRIMARY KEY,
    -- Grows with the record, not with the counts.
    revision bigint NOT NULL DEFAULT 1,
    open boolean NOT NULL,
    -- Something is being done to its members.
    errand boolean NOT NULL,
    -- Members by state, and the records that are there.
    counts bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0,0}',
    -- A place in running, completed, failed, cancelled.
    state smallint NOT NULL GENERATED ALWAYS AS (CASE
        WHEN open OR errand OR counts[1] + counts[2] + counts[3] + counts[4] + counts[5] > 0 THEN 0
        WHEN counts[7] + counts[8] > 0 THEN 2
        WHEN counts[9] > 0 THEN 3
        ELSE 1 END) STORED,
    record bytea NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);
CREATE INDEX workflows_listed ON @.workflows (state, number);
CREATE INDEX workflows_errands ON @.workflows (number) WHERE errand;

CREATE TABLE @.members (workflow bigint NOT NULL, seq bigint NOT NULL, PRIMARY KEY (workflow, seq));
CREATE TABLE @.member_names (workflow bigint NOT NULL, name text NOT NULL, seq bigint NOT NULL, PRIMARY KEY (workflow, name));

-- Ends that dependents have not heard of.
CREATE INDEX jobs_news ON @.jobs (due_at, seq) WHERE timer = 5;
