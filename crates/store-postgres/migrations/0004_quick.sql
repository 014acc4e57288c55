-- Whole transactions in one statement, for what a node knows enough about to have it decided before it asks. Everything is as the node believes it to be,
-- or nothing is done and the answer is not good. "counted" are queues, "changes" ten numbers for each of them.

-- What was believed about queues and time holds. A node may believe the present to be a moment ago, but not later than it is.
CREATE FUNCTION @.quick_open(lock_key bigint, believed_version bigint, believed_now bigint, OUT good boolean, OUT now_ms bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock_key);
    now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    good := (SELECT s.version FROM @.settings s) = believed_version
        AND (believed_now IS NULL OR believed_now BETWEEN now_ms - 1000 AND now_ms + 5);
END $$;

-- New jobs that nothing hangs on. Their numbers are from the last block that anybody has drawn: whoever is submitted later has a higher one. If another was
-- drawn since, a new block is.
CREATE FUNCTION @.quick_submit(
    lock_key bigint, believed_version bigint, believed_now bigint, believed_block bigint,
    seqs bigint[], places bigint[], dues bigint[], types bigint[], versions bigint[], cames bigint[], endeds bigint[], prunes bigint[], queues integer[],
    states smallint[], urgencies smallint[], priorities smallint[], timers smallint[], overs boolean[], plains boolean[], records bytea[], tolds bigint[],
    kinds smallint[], payloads bytea[], counted integer[], changes bigint[],
    OUT good boolean, OUT now_ms bigint, OUT block bigint) LANGUAGE plpgsql AS $$
BEGIN
    SELECT o.good, o.now_ms INTO good, now_ms FROM @.quick_open(lock_key, believed_version, believed_now) o;
    IF NOT good THEN
        RETURN;
    END IF;
    IF (SELECT last_value FROM @.numbers) IS DISTINCT FROM believed_block THEN
        good := false;
        block := nextval('@.numbers');
        RETURN;
    END IF;
    INSERT INTO @.jobs (seq, place, due_at, type, lease_version, came_at, ended_at, prune_at, queue, state, urgency, priority, timer, over, plain, record, told)
    SELECT * FROM unnest(seqs, places, dues, types, versions, cames, endeds, prunes, queues, states, urgencies, priorities, timers, overs, plains, records, tolds);
    INSERT INTO @.payloads (seq, kind, bytes) SELECT * FROM unnest(seqs, kinds, payloads);
    INSERT INTO @.count_changes (queue, changes) SELECT counted[n], quick_submit.changes[10 * n - 9 : 10 * n] FROM generate_subscripts(counted, 1) n;
END $$;

-- Jobs from the head of a line begin to run, if they still are its head. Answers what comes next in that line, so that the next claim knows it.
CREATE FUNCTION @.quick_claim(
    lock_key bigint, believed_version bigint, believed_now bigint, line integer,
    seqs bigint[], dues bigint[], timers smallint[], versions bigint[], records bytea[], was_versions bigint[], befores bytea[],
    counted integer[], changes bigint[], ahead bigint)
RETURNS TABLE (seq bigint, state smallint, lease_version bigint, place bigint, due_at bigint, timer smallint, record bytea, told bigint, kind smallint, bytes bytea,
    good boolean, now_ms bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    written bigint;
BEGIN
    SELECT o.good, o.now_ms INTO good, now_ms FROM @.quick_open(lock_key, believed_version, believed_now) o;
    IF good THEN
        good := seqs = ARRAY(
            SELECT j.seq FROM @.jobs j WHERE j.queue = line AND j.place IS NOT NULL ORDER BY j.queue, j.urgency, j.place LIMIT cardinality(seqs));
    END IF;
    RETURN NEXT;
    IF NOT good THEN
        RETURN;
    END IF;
    UPDATE @.jobs j SET place = NULL, came_at = NULL, state = 3, due_at = u.due_at, timer = u.timer, lease_version = u.lease_version, record = u.record
    FROM unnest(seqs, dues, timers, versions, records, was_versions, befores) AS u(seq, due_at, timer, lease_version, record, was_version, before)
    WHERE j.seq = u.seq AND j.state = 1 AND j.lease_version = u.was_version AND j.record = u.before;
    GET DIAGNOSTICS written = ROW_COUNT;
    PERFORM @.expect(written, cardinality(seqs));
    INSERT INTO @.count_changes (queue, changes) SELECT counted[n], quick_claim.changes[10 * n - 9 : 10 * n] FROM generate_subscripts(counted, 1) n;
    IF ahead > 0 THEN
        RETURN QUERY
            SELECT j.seq, j.state, j.lease_version, j.place, j.due_at, j.timer, j.record, j.told, p.kind, p.bytes, true, now_ms
            FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
            WHERE j.queue = line AND j.place IS NOT NULL ORDER BY j.queue, j.urgency, j.place LIMIT ahead;
    END IF;
END $$;

-- Runs end, or go on under the same lease, and nobody else has to hear of it.
CREATE FUNCTION @.quick_settle(
    lock_key bigint, believed_version bigint, believed_now bigint,
    seqs bigint[], states smallint[], endeds bigint[], prunes bigint[], overs boolean[], records bytea[], versions bigint[], befores bytea[],
    beaten bigint[], beaten_records bytea[], beaten_versions bigint[], beaten_befores bytea[],
    counted integer[], changes bigint[],
    OUT good boolean, OUT now_ms bigint) LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    SELECT o.good, o.now_ms INTO good, now_ms FROM @.quick_open(lock_key, believed_version, believed_now) o;
    IF NOT good THEN
        RETURN;
    END IF;
    IF cardinality(seqs) > 0 THEN
        UPDATE @.jobs j SET place = NULL, due_at = NULL, timer = NULL, told = NULL, state = u.state, ended_at = u.ended_at, prune_at = u.prune_at,
            over = u.over, record = u.record
        FROM unnest(seqs, states, endeds, prunes, overs, records, versions, befores) AS u(seq, state, ended_at, prune_at, over, record, version, before)
        WHERE j.seq = u.seq AND j.state + 0 = 3 AND j.lease_version = u.version AND j.record = u.before;
        GET DIAGNOSTICS written = ROW_COUNT;
        PERFORM @.expect(written, cardinality(seqs));
    END IF;
    IF cardinality(beaten) > 0 THEN
        UPDATE @.jobs j SET record = u.record
        FROM unnest(beaten, beaten_records, beaten_versions, beaten_befores) AS u(seq, record, version, before)
        WHERE j.seq = u.seq AND j.state + 0 = 3 AND j.lease_version = u.version AND j.record = u.before;
        GET DIAGNOSTICS written = ROW_COUNT;
        PERFORM @.expect(written, cardinality(beaten));
    END IF;
    INSERT INTO @.count_changes (queue, changes) SELECT counted[n], quick_settle.changes[10 * n - 9 : 10 * n] FROM generate_subscripts(counted, 1) n;
END $$;
