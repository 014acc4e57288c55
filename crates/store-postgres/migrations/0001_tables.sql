-- The tables of Longshore. "@" stands for the schema.
--
-- A job is its record: bytes that only the program reads (crates/records). The columns beside it are what statements look for; they follow from the
-- record. States are places in the list pending, scheduled, delayed, running, retrying, completed, failed, dead_letter, cancelled. Instants are
-- milliseconds since 1970.

CREATE TABLE @.settings (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Grows with every change of queues and names: whoever has another number reads them again.
    version bigint NOT NULL DEFAULT 1,
    -- Job ids are made from numbers with this key.
    id_secret bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()),
    -- Raised when the database is restored from a backup, so that no lease version is given twice.
    epoch bigint NOT NULL DEFAULT 1,
    -- Jobs came from another store and kept their ids.
    foreign_ids boolean NOT NULL DEFAULT false,
    -- Where the clock stands that is advanced by hand; jobs that go by it never go by another. NULL: not decided yet, 0: the database's clock.
    virtual_now bigint
);
INSERT INTO @.settings DEFAULT VALUES;

-- A transaction takes a block of numbers for jobs and places in line, and leaves what it does not need. Later blocks have higher numbers, on whichever node.
CREATE SEQUENCE @.numbers AS bigint INCREMENT BY 4096 MINVALUE 4096 START WITH 4096;

CREATE TABLE @.queue_names (number integer PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE @.queues (number integer PRIMARY KEY, record bytea NOT NULL);
CREATE TABLE @.policies (number integer PRIMARY KEY, value bytea NOT NULL);

-- Jobs that are alive, and those that have ended and were not archived yet.
CREATE TABLE @.jobs (
    seq bigint PRIMARY KEY,
    -- In line: of a scheduled job, or a running one whose lease has expired and that the next claim may take over.
    place bigint,
    -- Not later than its first timer falls due. A heartbeat leaves it as it is; the tick that finds it too early corrects it.
    due_at bigint,
    type bigint NOT NULL,
    lease_version bigint NOT NULL,
    -- Of a job in line that came into it after its submission.
    came_at bigint,
    ended_at bigint,
    prune_at bigint,
    -- How far its news have come among those who depend on it.
    told bigint,
    queue integer NOT NULL,
    state smallint NOT NULL,
    -- Effective, and the job's own.
    urgency smallint NOT NULL,
    priority smallint NOT NULL,
    timer smallint,
    -- It has ended, and nobody needs it any more: it may be archived.
    over boolean NOT NULL,
    -- Nothing in other tables hangs on it.
    plain boolean NOT NULL,
    record bytea NOT NULL
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
CREATE INDEX jobs_line ON @.jobs (queue, urgency, place, type) WHERE place IS NOT NULL;
CREATE INDEX jobs_timers ON @.jobs (due_at, timer, seq) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_aside ON @.jobs (state, queue, seq) WHERE state <> 1;
CREATE INDEX jobs_returned ON @.jobs (queue, seq) WHERE place IS NOT NULL AND place <> seq;
CREATE INDEX jobs_came ON @.jobs (queue, came_at) WHERE came_at IS NOT NULL;

-- Written once, read at the claim.
CREATE TABLE @.payloads (seq bigint PRIMARY KEY, kind smallint NOT NULL, bytes bytea NOT NULL)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

-- Jobs that have ended, by the day on which they did.
CREATE TABLE @.archive (
    seq bigint NOT NULL,
    day integer NOT NULL,
    type bigint NOT NULL,
    lease_version bigint NOT NULL,
    prune_at bigint,
    queue integer NOT NULL,
    state smallint NOT NULL,
    priority smallint NOT NULL,
    plain boolean NOT NULL,
    kind smallint NOT NULL,
    record bytea NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (seq, day)
) PARTITION BY RANGE (day);
CREATE INDEX archive_listed ON @.archive (state, queue, seq);
CREATE INDEX archive_prune ON @.archive (prune_at, seq) WHERE prune_at IS NOT NULL;

CREATE TABLE @.keys (path bytea PRIMARY KEY, seq bigint NOT NULL, id bytea NOT NULL, at bigint NOT NULL, purge_at bigint);
CREATE INDEX keys_purge ON @.keys (purge_at) WHERE purge_at IS NOT NULL;
CREATE TABLE @.external_ids (queue integer NOT NULL, external_id text NOT NULL, seq bigint NOT NULL, PRIMARY KEY (queue, external_id));
CREATE TABLE @.edges (dependency bigint NOT NULL, dependent bigint NOT NULL, PRIMARY KEY (dependency, dependent));
CREATE TABLE @.tags (word text NOT NULL, seq bigint NOT NULL, PRIMARY KEY (word, seq));
CREATE TABLE @.foreign_ids (id bytea PRIMARY KEY, seq bigint NOT NULL UNIQUE);

-- Jobs per queue and state, and what transactions have changed since they were added up. State 9 counts the held among the pending ones; the queue -1
-- has the totals of the Ocypod dialect.
CREATE TABLE @.counts (queue integer NOT NULL, state smallint NOT NULL, jobs bigint NOT NULL, PRIMARY KEY (queue, state)) WITH (fillfactor = 50);
CREATE TABLE @.count_changes (queue integer NOT NULL, changes bigint[] NOT NULL)
WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_limit = 2000);

-- A write that did not find its rows as they were read must not be committed.
CREATE FUNCTION @.expect(seen bigint, wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF seen <> wanted THEN
        RAISE EXCEPTION 'longshore: % rows were as they were read, not %', seen, wanted USING ERRCODE = '40001';
    END IF;
END $$;

-- The beginning of every transaction that changes jobs: from here on queues and names stay as they are. Alone: nobody else changes anything meanwhile.
-- No lock is waited for longer than lock_ms; NULL: as the session says.
CREATE FUNCTION @.open_turn(
    alone boolean, lock_key bigint, wants_numbers boolean, lock_ms bigint, OUT version bigint, OUT now_ms bigint, OUT first_number bigint)
LANGUAGE plpgsql AS $$
BEGIN
    IF alone THEN
        -- Everybody who comes later waits behind this, so it gives up soon and comes back.
        PERFORM set_config('lock_timeout', '50ms', true);
        PERFORM pg_advisory_xact_lock(lock_key);
    END IF;
    IF lock_ms IS NOT NULL THEN
        PERFORM set_config('lock_timeout', lock_ms || 'ms', true);
    END IF;
    IF NOT alone THEN
        PERFORM pg_advisory_xact_lock_shared(lock_key);
    END IF;
    SELECT s.version, CASE WHEN s.virtual_now > 0 THEN s.virtual_now ELSE floor(extract(epoch FROM clock_timestamp()) * 1000) END
        INTO version, now_ms FROM @.settings s;
    IF wants_numbers THEN
        first_number := nextval('@.numbers');
    END IF;
END $$;

-- Partitions are made and dropped by whoever owns the tables, on behalf of whoever may only use them.
CREATE FUNCTION @.make_day(of_day integer) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('@.make_day', 0));
    IF to_regclass(format('@.archive_%s', of_day)) IS NULL THEN
        EXECUTE format('CREATE TABLE @.archive_%s (LIKE @.archive INCLUDING DEFAULTS)', of_day);
        EXECUTE format('ALTER TABLE @.archive ATTACH PARTITION @.archive_%s FOR VALUES FROM (%s) TO (%s)', of_day, of_day, of_day + 1);
    END IF;
END $$;

-- Days of which every job may go, and nothing hangs on any: dropped whole. Says how many.
CREATE FUNCTION @.drop_days(now_ms bigint) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    of_day integer;
    stays boolean;
    dropped integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('@.make_day', 0)) THEN
        RETURN 0;
    END IF;
    SET LOCAL lock_timeout = '1s';
    SET LOCAL enable_seqscan = on;
    FOR of_day IN
        -- Materialized: other tables have no number in their names, and must not be asked for one.
        WITH days AS MATERIALIZED (
            SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = '@.archive'::regclass)
        SELECT substr(d.relname, 9)::integer FROM days d WHERE substr(d.relname, 9)::integer < now_ms / 86400000 ORDER BY 1
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM @.archive_%s WHERE prune_at IS NULL OR prune_at > $1 OR NOT plain)', of_day) INTO stays USING now_ms;
        CONTINUE WHEN stays;
        -- Nobody brings one back meanwhile.
        EXECUTE format('LOCK TABLE @.archive_%s IN ACCESS EXCLUSIVE MODE', of_day);
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM @.archive_%s WHERE prune_at IS NULL OR prune_at > $1 OR NOT plain)', of_day) INTO stays USING now_ms;
        CONTINUE WHEN stays;
        EXECUTE format('INSERT INTO @.count_changes (queue, changes)
            SELECT q.queue, ARRAY(SELECT -(SELECT count(*) FROM @.archive_%1$s a WHERE a.queue = q.queue AND a.state = s) FROM generate_series(0, 9) s)
            FROM (SELECT DISTINCT queue FROM @.archive_%1$s) q', of_day);
        EXECUTE format('DROP TABLE @.archive_%s', of_day);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;
REVOKE ALL ON FUNCTION @.make_day(integer), @.drop_days(bigint) FROM PUBLIC;
