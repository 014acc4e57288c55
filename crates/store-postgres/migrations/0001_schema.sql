-- Tables of Longshore. "@" stands for the schema.
--
-- A job is stored as an encoded record (crates/codec). The columns next to it are derived from the
-- record and exist for indexes. States are numbered: 0 pending, 1 scheduled, 2 delayed, 3 running,
-- 4 retrying, 5 completed, 6 failed, 7 dead_letter, 8 cancelled. Times are milliseconds since 1970.

CREATE TABLE @.settings (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    -- Catalog version. Every change of queues or names increments it; a node that has cached
    -- another version reads the catalog again.
    version bigint NOT NULL DEFAULT 1,
    -- Key of the cipher that derives job ids from sequence numbers.
    id_secret bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()),
    -- Raised after a restore from a backup, so that no lease version is issued twice.
    epoch bigint NOT NULL DEFAULT 1,
    -- Whether imported_ids has rows.
    imported_ids boolean NOT NULL DEFAULT false,
    -- Virtual time. NULL: undecided, 0: the database clock is used. It never changes from one to
    -- the other.
    virtual_now bigint
);
INSERT INTO @.settings DEFAULT VALUES;

-- Allocates sequence numbers in blocks of 4,096. A later block has higher numbers, on any node.
-- Numbers of a block that a node does not use are lost.
CREATE SEQUENCE @.seq_blocks AS bigint INCREMENT BY 4096 MINVALUE 4096 START WITH 4096;

CREATE TABLE @.queue_names (number integer PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE @.queues (
    number integer PRIMARY KEY,
    record bytea NOT NULL,
    -- Settings that submit() needs, derived from the record.
    admission jsonb
);
CREATE TABLE @.policies (number integer PRIMARY KEY, value bytea NOT NULL);

-- Live jobs, and finished jobs that are not archived yet.
CREATE TABLE @.jobs (
    seq bigint PRIMARY KEY,
    -- Position in the queue: of a scheduled job, or of a running job whose lease has expired and
    -- that the next claim may take over. NULL: cannot be claimed.
    ready_position bigint,
    -- Lower bound of the first timer. A heartbeat leaves it unchanged; a tick that finds it too
    -- early corrects it.
    due_at bigint,
    -- FNV-1a of the job type.
    type_hash bigint NOT NULL,
    lease_version bigint NOT NULL,
    -- When the job became ready, if that was after its submission.
    enqueued_at bigint,
    ended_at bigint,
    prune_at bigint,
    -- Last dependent that the job's completion has been propagated to. NULL: not in progress.
    propagation_cursor bigint,
    queue integer NOT NULL,
    state smallint NOT NULL,
    -- Own priority, or a higher one inherited from dependents.
    effective_priority smallint NOT NULL,
    priority smallint NOT NULL,
    timer_kind smallint,
    -- Finished, and no unfinished job depends on it.
    archivable boolean NOT NULL,
    -- No rows in other tables refer to the job, except its payload.
    standalone boolean NOT NULL,
    record bytea NOT NULL
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
CREATE INDEX jobs_ready ON @.jobs (queue, effective_priority, ready_position, type_hash) WHERE ready_position IS NOT NULL;
CREATE INDEX jobs_timers ON @.jobs (due_at, timer_kind, seq) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_by_state ON @.jobs (state, queue, seq) WHERE state <> 1;
CREATE INDEX jobs_out_of_order ON @.jobs (queue, seq) WHERE ready_position IS NOT NULL AND ready_position <> seq;
CREATE INDEX jobs_enqueued_at ON @.jobs (queue, enqueued_at) WHERE enqueued_at IS NOT NULL;
-- Timer kind 5: completion that has not been propagated to all dependents.
CREATE INDEX jobs_pending_propagation ON @.jobs (due_at, seq) WHERE timer_kind = 5;

-- Written once, read by the claim.
CREATE TABLE @.payloads (seq bigint PRIMARY KEY, kind smallint NOT NULL, bytes bytea NOT NULL)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

-- Finished jobs with their payloads, one partition per day of completion.
CREATE TABLE @.archive (
    seq bigint NOT NULL,
    day integer NOT NULL,
    type_hash bigint NOT NULL,
    lease_version bigint NOT NULL,
    prune_at bigint,
    queue integer NOT NULL,
    state smallint NOT NULL,
    priority smallint NOT NULL,
    standalone boolean NOT NULL,
    kind smallint NOT NULL,
    record bytea NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (seq, day)
) PARTITION BY RANGE (day);
CREATE INDEX archive_by_state ON @.archive (state, queue, seq);
CREATE INDEX archive_prune ON @.archive (prune_at, seq) WHERE prune_at IS NOT NULL;

CREATE TABLE @.idempotency_keys (path bytea PRIMARY KEY, seq bigint NOT NULL, id bytea NOT NULL, at bigint NOT NULL, prune_at bigint);
CREATE INDEX idempotency_keys_prune ON @.idempotency_keys (prune_at) WHERE prune_at IS NOT NULL;
CREATE TABLE @.external_ids (queue integer NOT NULL, external_id text NOT NULL, seq bigint NOT NULL, PRIMARY KEY (queue, external_id));
CREATE TABLE @.dependency_edges (dependency bigint NOT NULL, dependent bigint NOT NULL, PRIMARY KEY (dependency, dependent));
-- Search terms: tags, and hashes of correlation ids and idempotency keys.
CREATE TABLE @.tags (term text NOT NULL, seq bigint NOT NULL, PRIMARY KEY (term, seq));
-- Ids of jobs and workflows that were imported from another store.
CREATE TABLE @.imported_ids (id bytea PRIMARY KEY, seq bigint NOT NULL UNIQUE);

-- Jobs per queue and state, plus deltas of transactions that have not been compacted into them.
-- State 9 counts held jobs (a subset of pending). Queue -1 holds the totals of the Ocypod API.
CREATE TABLE @.queue_counts (queue integer NOT NULL, state smallint NOT NULL, jobs bigint NOT NULL, PRIMARY KEY (queue, state)) WITH (fillfactor = 50);
CREATE TABLE @.queue_count_deltas (queue integer NOT NULL, deltas bigint[] NOT NULL)
WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_limit = 2000);

CREATE TABLE @.workflows (
    number bigint PRIMARY KEY,
    -- Incremented with every change of the record, not of the counts.
    revision bigint NOT NULL DEFAULT 1,
    open boolean NOT NULL,
    -- A bulk operation on the members is in progress.
    operation_active boolean NOT NULL,
    -- Members per state, then the number of stored records. Transactions add deltas to it.
    counts bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0,0}',
    -- 0 running, 1 completed, 2 failed, 3 cancelled.
    state smallint NOT NULL GENERATED ALWAYS AS (CASE
        WHEN open OR operation_active OR counts[1] + counts[2] + counts[3] + counts[4] + counts[5] > 0 THEN 0
        WHEN counts[7] + counts[8] > 0 THEN 2
        WHEN counts[9] > 0 THEN 3
        ELSE 1 END) STORED,
    record bytea NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);
CREATE INDEX workflows_by_state ON @.workflows (state, number);
CREATE INDEX workflows_with_operation ON @.workflows (number) WHERE operation_active;

CREATE TABLE @.workflow_members (workflow bigint NOT NULL, seq bigint NOT NULL, PRIMARY KEY (workflow, seq));
CREATE TABLE @.workflow_member_refs (workflow bigint NOT NULL, name text NOT NULL, seq bigint NOT NULL, PRIMARY KEY (workflow, name));

-- Aborts the transaction if a write found other rows than the transaction had read.
CREATE FUNCTION @.assert_row_count(actual bigint, expected bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF actual <> expected THEN
        RAISE EXCEPTION 'longshore: conflict: % of % rows are unchanged since they were read', actual, expected USING ERRCODE = '40001';
    END IF;
END $$;

-- First statement of every transaction that changes jobs. The shared advisory lock keeps queues and
-- names unchanged until the commit; the exclusive lock keeps out all other writers. lock_ms is the
-- lock timeout (NULL: that of the session).
CREATE FUNCTION @.begin_transaction(
    exclusive boolean, lock_key bigint, needs_seqs boolean, lock_ms bigint, OUT version bigint, OUT now_ms bigint, OUT first_seq bigint)
LANGUAGE plpgsql AS $$
BEGIN
    IF exclusive THEN
        -- Later transactions queue up behind this request: it gives up early, and the node retries.
        PERFORM set_config('lock_timeout', '50ms', true);
        PERFORM pg_advisory_xact_lock(lock_key);
    END IF;
    IF lock_ms IS NOT NULL THEN
        PERFORM set_config('lock_timeout', lock_ms || 'ms', true);
    END IF;
    IF NOT exclusive THEN
        PERFORM pg_advisory_xact_lock_shared(lock_key);
    END IF;
    SELECT s.version, CASE WHEN s.virtual_now > 0 THEN s.virtual_now ELSE floor(extract(epoch FROM clock_timestamp()) * 1000) END
        INTO version, now_ms FROM @.settings s;
    IF needs_seqs THEN
        first_seq := nextval('@.seq_blocks');
    END IF;
END $$;

-- Creates the partition of a day. SECURITY DEFINER: the role of a server need not own the tables.
CREATE FUNCTION @.create_archive_partition(of_day integer) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('@.archive_partitions', 0));
    IF to_regclass(format('@.archive_%s', of_day)) IS NULL THEN
        EXECUTE format('CREATE TABLE @.archive_%s (LIKE @.archive INCLUDING DEFAULTS)', of_day);
        EXECUTE format('ALTER TABLE @.archive ATTACH PARTITION @.archive_%s FOR VALUES FROM (%s) TO (%s)', of_day, of_day, of_day + 1);
    END IF;
END $$;

-- Drops partitions whose jobs are all standalone and past their retention. Returns how many.
CREATE FUNCTION @.drop_archive_partitions(now_ms bigint) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    of_day integer;
    needed boolean;
    dropped integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('@.archive_partitions', 0)) THEN
        RETURN 0;
    END IF;
    SET LOCAL lock_timeout = '1s';
    SET LOCAL enable_seqscan = on;
    FOR of_day IN
        -- MATERIALIZED: the cast must only see names of partitions.
        WITH partitions AS MATERIALIZED (
            SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = '@.archive'::regclass)
        SELECT substr(p.relname, 9)::integer FROM partitions p WHERE substr(p.relname, 9)::integer < now_ms / 86400000 ORDER BY 1
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM @.archive_%s WHERE prune_at IS NULL OR prune_at > $1 OR NOT standalone)', of_day) INTO needed USING now_ms;
        CONTINUE WHEN needed;
        -- Check again under the lock: a transaction may have restored a job meanwhile.
        EXECUTE format('LOCK TABLE @.archive_%s IN ACCESS EXCLUSIVE MODE', of_day);
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM @.archive_%s WHERE prune_at IS NULL OR prune_at > $1 OR NOT standalone)', of_day) INTO needed USING now_ms;
        CONTINUE WHEN needed;
        EXECUTE format('INSERT INTO @.queue_count_deltas (queue, deltas)
            SELECT q.queue, ARRAY(SELECT -(SELECT count(*) FROM @.archive_%1$s a WHERE a.queue = q.queue AND a.state = s) FROM generate_series(0, 9) s)
            FROM (SELECT DISTINCT queue FROM @.archive_%1$s) q', of_day);
        EXECUTE format('DROP TABLE @.archive_%s', of_day);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;
REVOKE ALL ON FUNCTION @.create_archive_partition(integer), @.drop_archive_partitions(bigint) FROM PUBLIC;
