-- Statements of claims, completions and heartbeats, each in one function that both paths call.
-- Slow path: the transaction has read and locked the rows, and calls mark_* with expected_records
-- NULL. Fast path: fast_work calls them with the records that the node has cached.

-- Moves scheduled jobs to running. Aborts unless all rows have the expected lease version, and the
-- expected record if one is given.
CREATE FUNCTION @.mark_claimed(
    seqs bigint[], dues bigint[], timer_kinds smallint[], lease_versions bigint[], records bytea[], expected_versions bigint[], expected_records bytea[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    updated bigint;
BEGIN
    UPDATE @.jobs j SET ready_position = NULL, enqueued_at = NULL, state = 3, due_at = u.due_at, timer_kind = u.timer_kind,
        lease_version = u.lease_version, record = u.record
    FROM unnest(seqs, dues, timer_kinds, lease_versions, records, expected_versions, expected_records)
        AS u(seq, due_at, timer_kind, lease_version, record, expected_version, expected_record)
    WHERE j.seq = u.seq AND j.state = 1 AND j.lease_version = u.expected_version AND (u.expected_record IS NULL OR j.record = u.expected_record);
    GET DIAGNOSTICS updated = ROW_COUNT;
    IF updated <> cardinality(seqs) THEN
        PERFORM @.assert_row_count(updated, cardinality(seqs));
    END IF;
END $$;

-- Moves running jobs to a terminal state. "state + 0" keeps the planner off jobs_by_state.
CREATE FUNCTION @.mark_finished(
    seqs bigint[], states smallint[], ended_ats bigint[], prune_ats bigint[], archivables boolean[], records bytea[], expected_versions bigint[],
    expected_records bytea[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    updated bigint;
BEGIN
    UPDATE @.jobs j SET ready_position = NULL, due_at = NULL, timer_kind = NULL, propagation_cursor = NULL, state = u.state, ended_at = u.ended_at,
        prune_at = u.prune_at, archivable = u.archivable, record = u.record
    FROM unnest(seqs, states, ended_ats, prune_ats, archivables, records, expected_versions, expected_records)
        AS u(seq, state, ended_at, prune_at, archivable, record, expected_version, expected_record)
    WHERE j.seq = u.seq AND j.state + 0 = 3 AND j.lease_version = u.expected_version
        AND (u.expected_record IS NULL OR (j.ready_position IS NULL AND j.propagation_cursor IS NULL AND j.record = u.expected_record));
    GET DIAGNOSTICS updated = ROW_COUNT;
    IF updated <> cardinality(seqs) THEN
        PERFORM @.assert_row_count(updated, cardinality(seqs));
    END IF;
END $$;

-- Replaces the records of running jobs. No indexed column changes, so the update is a HOT update.
CREATE FUNCTION @.mark_heartbeat(seqs bigint[], records bytea[], expected_versions bigint[], expected_records bytea[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    updated bigint;
BEGIN
    UPDATE @.jobs j SET record = u.record
    FROM unnest(seqs, records, expected_versions, expected_records) AS u(seq, record, expected_version, expected_record)
    WHERE j.seq = u.seq AND j.state + 0 = 3 AND j.lease_version = u.expected_version
        AND (u.expected_record IS NULL OR (j.ready_position IS NULL AND j.propagation_cursor IS NULL AND j.record = u.expected_record));
    GET DIAGNOSTICS updated = ROW_COUNT;
    IF updated <> cardinality(seqs) THEN
        PERFORM @.assert_row_count(updated, cardinality(seqs));
    END IF;
END $$;

-- Returns the first jobs of a queue from a position on, without locks, for the node's cache.
-- Records and payloads above 4 KiB are NULL.
CREATE FUNCTION @.prefetch_head(queue_id integer, from_priority smallint, from_position bigint, size bigint)
RETURNS TABLE (seq bigint, state smallint, lease_version bigint, ready_position bigint, due_at bigint, timer_kind smallint, record bytea,
    propagation_cursor bigint, kind smallint, bytes bytea) LANGUAGE sql STABLE AS $$
    SELECT j.seq, j.state, j.lease_version, j.ready_position, j.due_at, j.timer_kind, CASE WHEN octet_length(j.record) <= 4096 THEN j.record END,
        j.propagation_cursor, p.kind, CASE WHEN octet_length(p.bytes) <= 4096 THEN p.bytes END
    FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq
    WHERE j.queue = queue_id AND j.ready_position IS NOT NULL AND (j.effective_priority, j.ready_position) >= (from_priority, from_position)
    ORDER BY j.queue, j.effective_priority, j.ready_position LIMIT size
$$;

-- Optimistic transactions in one statement. The caller passes the versions that it read. If any
-- row, the catalog version or the queue head differs, nothing is changed: applied is false, or the
-- transaction aborts with 40001. assumed_now may lag the database clock by 250 ms and lead it by 5
-- ms; NULL: virtual time. "counted" lists queues, "deltas" ten numbers for each of them.

-- Inserts new standalone jobs. Their sequence numbers are of expected_block, which must be the
-- last block that any node has allocated, so that jobs submitted later have higher numbers. If it
-- is not, returns a new block and inserts nothing.
CREATE FUNCTION @.fast_submit(
    lock_key bigint, expected_version bigint, assumed_now bigint, expected_block bigint,
    seqs bigint[], ready_positions bigint[], dues bigint[], type_hashes bigint[], queues integer[], states smallint[], effective_priorities smallint[],
    priorities smallint[], timer_kinds smallint[], records bytea[], kinds smallint[], payloads bytea[], counted integer[], deltas bigint[],
    OUT applied boolean, OUT now_ms bigint, OUT block bigint) LANGUAGE plpgsql AS $$
DECLARE
    ignored text;
BEGIN
    -- Assigned, not PERFORMed: PL/pgSQL evaluates a simple expression without the executor, in a
    -- tenth of the time.
    ignored := pg_advisory_xact_lock_shared(lock_key)::text;
    now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    SELECT s.version = expected_version AND (assumed_now IS NULL OR assumed_now BETWEEN now_ms - 250 AND now_ms + 5), b.last_value
        INTO applied, block FROM @.settings s, @.seq_blocks b;
    IF NOT applied OR block <> expected_block THEN
        block := CASE WHEN applied THEN nextval('@.seq_blocks') END;
        applied := false;
        RETURN;
    END IF;
    WITH jobs AS (
        INSERT INTO @.jobs (seq, ready_position, due_at, type_hash, queue, state, effective_priority, priority, timer_kind, record, lease_version,
            archivable, standalone)
        SELECT u.*, 0, false, true
        FROM unnest(seqs, ready_positions, dues, type_hashes, queues, states, effective_priorities, priorities, timer_kinds, records) u),
    payloads AS (INSERT INTO @.payloads (seq, kind, bytes) SELECT * FROM unnest(seqs, kinds, payloads))
    INSERT INTO @.queue_count_deltas (queue, deltas)
    SELECT counted[n], fast_submit.deltas[10 * n - 9 : 10 * n] FROM generate_subscripts(counted, 1) n;
END $$;

-- Finishes jobs, renews leases, and claims the head of one queue. The claimed jobs must be the
-- first ones from (from_priority, from_position) on, and no job of a more urgent priority may be
-- ready. Returns one row with applied and now_ms, then the next "prefetch" jobs of the queue.
CREATE FUNCTION @.fast_work(
    lock_key bigint, expected_version bigint, assumed_now bigint,
    finished bigint[], finished_states smallint[], finished_ats bigint[], finished_prune_ats bigint[], finished_archivables boolean[],
    finished_records bytea[], finished_versions bigint[], finished_expected_records bytea[],
    heartbeats bigint[], heartbeat_records bytea[], heartbeat_versions bigint[], heartbeat_expected_records bytea[],
    queue_id integer, from_priority smallint, from_position bigint, claimed bigint[], claimed_dues bigint[], claimed_timer_kinds smallint[],
    claimed_lease_versions bigint[], claimed_records bytea[], claimed_versions bigint[], claimed_expected_records bytea[],
    counted integer[], deltas bigint[], prefetch bigint)
RETURNS TABLE (seq bigint, state smallint, lease_version bigint, ready_position bigint, due_at bigint, timer_kind smallint, record bytea,
    propagation_cursor bigint, kind smallint, bytes bytea, applied boolean, now_ms bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ignored text;
BEGIN
    ignored := pg_advisory_xact_lock_shared(lock_key)::text;
    -- A row that is locked for longer sends the request to the slow path.
    ignored := set_config('lock_timeout', '100ms', true);
    now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    applied := (SELECT s.version = expected_version FROM @.settings s) AND (assumed_now IS NULL OR assumed_now BETWEEN now_ms - 250 AND now_ms + 5)
        AND (cardinality(claimed) = 0 OR (
            claimed = ARRAY(
                SELECT j.seq FROM @.jobs j
                WHERE j.queue = queue_id AND j.ready_position IS NOT NULL AND (j.effective_priority, j.ready_position) >= (from_priority, from_position)
                ORDER BY j.queue, j.effective_priority, j.ready_position LIMIT cardinality(claimed))
            AND NOT EXISTS (SELECT FROM @.jobs e WHERE e.queue = queue_id AND e.ready_position IS NOT NULL AND e.effective_priority < from_priority)));
    RETURN NEXT;
    IF NOT applied THEN
        RETURN;
    END IF;
    IF cardinality(finished) > 0 THEN
        ignored := @.mark_finished(finished, finished_states, finished_ats, finished_prune_ats, finished_archivables, finished_records,
            finished_versions, finished_expected_records)::text;
    END IF;
    IF cardinality(heartbeats) > 0 THEN
        ignored := @.mark_heartbeat(heartbeats, heartbeat_records, heartbeat_versions, heartbeat_expected_records)::text;
    END IF;
    IF cardinality(claimed) > 0 THEN
        ignored := @.mark_claimed(claimed, claimed_dues, claimed_timer_kinds, claimed_lease_versions, claimed_records, claimed_versions,
            claimed_expected_records)::text;
    END IF;
    INSERT INTO @.queue_count_deltas (queue, deltas)
    SELECT counted[n], fast_work.deltas[10 * n - 9 : 10 * n] FROM generate_subscripts(counted, 1) n;
    IF prefetch > 0 THEN
        RETURN QUERY
            SELECT h.seq, h.state, h.lease_version, h.ready_position, h.due_at, h.timer_kind, h.record, h.propagation_cursor, h.kind, h.bytes, true, now_ms
            FROM @.prefetch_head(queue_id, from_priority, from_position, prefetch) h;
    END IF;
END $$;

-- Claims over many queues in one statement: locks and returns the jobs that the claims may take.
-- "queues" lists the queues of the first claim, then those of the next, each in the claim's order;
-- "queue_claims" gives the claim of each (from 1). "types" and "type_claims" do the same for type
-- hashes; a claim without types takes all. Per claim at most "limits" rows are locked. Jobs in
-- "excluded" are skipped, and a job is returned once. "queue_index" is the index in "queues".
-- Queues with "fifo" ignore priorities. Of these, "overscan" more rows are read, because other
-- transactions may have locked the first ones.
CREATE FUNCTION @.claim_queues(
    queues integer[], fifo boolean[], queue_claims integer[], types bigint[], type_claims integer[], limits bigint[], excluded bigint[], overscan bigint)
RETURNS TABLE (seq bigint, state smallint, lease_version bigint, ready_position bigint, due_at bigint, timer_kind smallint, record bytea,
    propagation_cursor bigint, kind smallint, bytes bytea, queue_index integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    claim integer := 0;
    missing bigint := 0;
    scan_limit bigint;
    claim_types bigint[];
    queue_id integer;
    locked bigint[];
BEGIN
    FOR n IN 1 .. cardinality(queues) LOOP
        IF queue_claims[n] <> claim THEN
            claim := queue_claims[n];
            missing := limits[claim];
            claim_types := ARRAY(SELECT t.type_hash FROM unnest(types, type_claims) t(type_hash, of_claim) WHERE t.of_claim = claim);
        END IF;
        CONTINUE WHEN missing <= 0;
        queue_id := queues[n];
        scan_limit := missing + overscan;
        IF NOT fifo[n] AND cardinality(claim_types) = 0 THEN
            locked := ARRAY(
                SELECT j.seq FROM @.jobs j WHERE j.queue = queue_id AND j.ready_position IS NOT NULL AND j.seq <> ALL (excluded)
                ORDER BY j.queue, j.effective_priority, j.ready_position LIMIT missing FOR UPDATE OF j SKIP LOCKED);
        ELSIF NOT fifo[n] THEN
            locked := ARRAY(
                SELECT j.seq FROM @.jobs j
                WHERE j.queue = queue_id AND j.ready_position IS NOT NULL AND j.seq <> ALL (excluded) AND j.type_hash = ANY (claim_types)
                ORDER BY j.queue, j.effective_priority, j.ready_position LIMIT missing FOR UPDATE OF j SKIP LOCKED);
        ELSIF cardinality(claim_types) = 0 THEN
            locked := ARRAY(
                SELECT j.seq FROM @.jobs j WHERE j.ready_position IS NOT NULL AND j.seq = ANY (ARRAY(
                    SELECT h.seq FROM generate_series(0, 4) level CROSS JOIN LATERAL (
                        SELECT i.seq, i.ready_position FROM @.jobs i
                        WHERE i.queue = queue_id AND i.effective_priority = level AND i.ready_position IS NOT NULL AND i.seq <> ALL (excluded)
                        ORDER BY i.queue, i.effective_priority, i.ready_position LIMIT scan_limit) h
                    ORDER BY h.ready_position LIMIT scan_limit))
                ORDER BY j.ready_position LIMIT missing FOR UPDATE OF j SKIP LOCKED);
        ELSE
            locked := ARRAY(
                SELECT j.seq FROM @.jobs j WHERE j.ready_position IS NOT NULL AND j.seq = ANY (ARRAY(
                    SELECT h.seq FROM generate_series(0, 4) level CROSS JOIN LATERAL (
                        SELECT i.seq, i.ready_position FROM @.jobs i
                        WHERE i.queue = queue_id AND i.effective_priority = level AND i.ready_position IS NOT NULL AND i.seq <> ALL (excluded)
                            AND i.type_hash = ANY (claim_types)
                        ORDER BY i.queue, i.effective_priority, i.ready_position LIMIT scan_limit) h
                    ORDER BY h.ready_position LIMIT scan_limit))
                ORDER BY j.ready_position LIMIT missing FOR UPDATE OF j SKIP LOCKED);
        END IF;
        CONTINUE WHEN cardinality(locked) = 0;
        excluded := excluded || locked;
        missing := missing - cardinality(locked);
        RETURN QUERY
            SELECT j.seq, j.state, j.lease_version, j.ready_position, j.due_at, j.timer_kind, j.record, j.propagation_cursor, p.kind, p.bytes, n
            FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq WHERE j.seq = ANY (locked);
    END LOOP;
END $$;
