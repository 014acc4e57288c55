-- Whole transactions in one statement, for what a node knows enough about to have it decided before it asks. Everything is as the node believes it to be,
-- or nothing is done and the answer is not good. That a node believes the present to be a moment ago does no harm; it must not be later than it is. "counted"
-- are queues, "changes" ten numbers for each of them.

-- New jobs that nothing hangs on, and that have not run. Their numbers are from the last block that anybody has drawn: whoever is submitted later has a
-- higher one. If another was drawn since, a new block is.
CREATE FUNCTION @.quick_submit(
    lock_key bigint, believed_version bigint, believed_now bigint, believed_block bigint,
    seqs bigint[], places bigint[], dues bigint[], types bigint[], queues integer[], states smallint[], urgencies smallint[], priorities smallint[],
    timers smallint[], records bytea[], kinds smallint[], payloads bytea[], counted integer[], changes bigint[],
    OUT good boolean, OUT now_ms bigint, OUT block bigint) LANGUAGE plpgsql AS $$
DECLARE
    nothing text;
BEGIN
    -- As an expression: a statement costs ten times as much.
    nothing := pg_advisory_xact_lock_shared(lock_key)::text;
    now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    SELECT s.version = believed_version AND (believed_now IS NULL OR believed_now BETWEEN now_ms - 250 AND now_ms + 5), n.last_value
        INTO good, block FROM @.settings s, @.numbers n;
    IF NOT good OR block <> believed_block THEN
        block := CASE WHEN good THEN nextval('@.numbers') END;
        good := false;
        RETURN;
    END IF;
    WITH jobs AS (
        INSERT INTO @.jobs (seq, place, due_at, type, queue, state, urgency, priority, timer, record, lease_version, over, plain)
        SELECT u.*, 0, false, true FROM unnest(seqs, places, dues, types, queues, states, urgencies, priorities, timers, records) u),
    payloads AS (INSERT INTO @.payloads (seq, kind, bytes) SELECT * FROM unnest(seqs, kinds, payloads))
    INSERT INTO @.count_changes (queue, changes) SELECT counted[n], quick_submit.changes[10 * n - 9 : 10 * n] FROM generate_subscripts(counted, 1) n;
END $$;

-- Runs end, or go on under the same lease, and nobody else has to hear of it; jobs from the head of a line begin to run, if they still are its head. The
-- line is looked at from a place on: before it lie the remains of those who were claimed, until a vacuum comes by. Answers one row about itself, and then
-- what comes next in that line, so that the next claim knows it.
CREATE FUNCTION @.quick_work(
    lock_key bigint, believed_version bigint, believed_now bigint,
    ended bigint[], ended_states smallint[], ended_ats bigint[], ended_prunes bigint[], ended_overs boolean[], ended_records bytea[], ended_versions bigint[],
    ended_befores bytea[],
    beaten bigint[], beaten_records bytea[], beaten_versions bigint[], beaten_befores bytea[],
    line integer, from_urgency smallint, from_place bigint, begun bigint[], begun_dues bigint[], begun_timers smallint[], begun_versions bigint[],
    begun_records bytea[], begun_was_versions bigint[], begun_befores bytea[],
    counted integer[], changes bigint[], ahead bigint)
RETURNS TABLE (seq bigint, state smallint, lease_version bigint, place bigint, due_at bigint, timer smallint, record bytea, told bigint, kind smallint, bytes bytea,
    good boolean, now_ms bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    nothing text;
    written bigint;
BEGIN
    nothing := pg_advisory_xact_lock_shared(lock_key)::text;
    -- Whoever holds a row for longer holds up nobody but those who go the long way.
    nothing := set_config('lock_timeout', '100ms', true);
    now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    good := (SELECT s.version = believed_version FROM @.settings s) AND (believed_now IS NULL OR believed_now BETWEEN now_ms - 250 AND now_ms + 5)
        AND (cardinality(begun) = 0 OR (
            begun = ARRAY(
                SELECT j.seq FROM @.jobs j WHERE j.queue = line AND j.place IS NOT NULL AND (j.urgency, j.place) >= (from_urgency, from_place)
                ORDER BY j.queue, j.urgency, j.place LIMIT cardinality(begun))
            AND NOT EXISTS (SELECT FROM @.jobs e WHERE e.queue = line AND e.place IS NOT NULL AND e.urgency < from_urgency)));
    RETURN NEXT;
    IF NOT good THEN
        RETURN;
    END IF;
    IF cardinality(ended) > 0 THEN
        UPDATE @.jobs j SET place = NULL, due_at = NULL, timer = NULL, told = NULL, state = u.state, ended_at = u.ended_at, prune_at = u.prune_at,
            over = u.over, record = u.record
        FROM unnest(ended, ended_states, ended_ats, ended_prunes, ended_overs, ended_records, ended_versions, ended_befores)
            AS u(seq, state, ended_at, prune_at, over, record, version, before)
        WHERE j.seq = u.seq AND j.state + 0 = 3 AND j.lease_version = u.version AND j.place IS NULL AND j.told IS NULL AND j.record = u.before;
        GET DIAGNOSTICS written = ROW_COUNT;
        nothing := @.expect(written, cardinality(ended))::text;
    END IF;
    IF cardinality(beaten) > 0 THEN
        UPDATE @.jobs j SET record = u.record FROM unnest(beaten, beaten_records, beaten_versions, beaten_befores) AS u(seq, record, version, before)
        WHERE j.seq = u.seq AND j.state + 0 = 3 AND j.lease_version = u.version AND j.place IS NULL AND j.told IS NULL AND j.record = u.before;
        GET DIAGNOSTICS written = ROW_COUNT;
        nothing := @.expect(written, cardinality(beaten))::text;
    END IF;
    IF cardinality(begun) > 0 THEN
        UPDATE @.jobs j SET place = NULL, came_at = NULL, state = 3, due_at = u.due_at, timer = u.timer, lease_version = u.lease_version, record = u.record
        FROM unnest(begun, begun_dues, begun_timers, begun_versions, begun_records, begun_was_versions, begun_befores)
            AS u(seq, due_at, timer, lease_version, record, was_version, before)
        WHERE j.seq = u.seq AND j.state = 1 AND j.lease_version = u.was_version AND j.record = u.before;
        GET DIAGNOSTICS written = ROW_COUNT;
        nothing := @.expect(written, cardinality(begun))::text;
    END IF;
    INSERT INTO @.count_changes (queue, changes) SELECT counted[n], quick_work.changes[10 * n - 9 : 10 * n] FROM generate_subscripts(counted, 1) n;
    IF ahead > 0 THEN
        RETURN QUERY
            SELECT j.seq, j.state, j.lease_version, j.place, j.due_at, j.timer,
                CASE WHEN octet_length(j.record) <= 4096 THEN j.record END, j.told, p.kind, CASE WHEN octet_length(p.bytes) <= 4096 THEN p.bytes END, true, now_ms
            FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
            WHERE j.queue = line AND j.place IS NOT NULL AND (j.urgency, j.place) >= (from_urgency, from_place)
            ORDER BY j.queue, j.urgency, j.place LIMIT ahead;
    END IF;
END $$;
