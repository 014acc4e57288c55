-- Claims over many queues in one statement.

-- Locks and returns the jobs that claims may take. "queues" are the queues of the first claim, then those of the next, each in the order in which the claim
-- names them; "queue_claims" says to which claim each belongs (from 1). "types" and "type_claims" do the same for the types; a claim without any takes all.
-- A claim gets at most "limits" jobs: no row is locked beyond that. Jobs in "known" are passed over, and a job is returned once. "line" is the place of the
-- job's queue in "queues". "flat" queues are worked off by place alone, the others by urgency first; "spare" more rows of a flat queue are looked at, because
-- others may hold some of the first.
CREATE FUNCTION @.claim_lines(
    queues integer[], flat boolean[], queue_claims integer[], types bigint[], type_claims integer[], limits bigint[], known bigint[], spare bigint)
RETURNS TABLE (seq bigint, state smallint, lease_version bigint, place bigint, due_at bigint, timer smallint, record bytea, told bigint, kind smallint, bytes bytea,
    line integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    claim integer := 0;
    wanted bigint := 0;
    look bigint;
    of_types bigint[];
    of_queue integer;
    picked bigint[];
BEGIN
    FOR n IN 1 .. cardinality(queues) LOOP
        IF queue_claims[n] <> claim THEN
            claim := queue_claims[n];
            wanted := limits[claim];
            of_types := ARRAY(SELECT t.type FROM unnest(types, type_claims) t(type, of_claim) WHERE t.of_claim = claim);
        END IF;
        CONTINUE WHEN wanted <= 0;
        of_queue := queues[n];
        look := wanted + spare;
        IF NOT flat[n] AND cardinality(of_types) = 0 THEN
            picked := ARRAY(
                SELECT j.seq FROM @.jobs j WHERE j.queue = of_queue AND j.place IS NOT NULL AND j.seq <> ALL (known)
                ORDER BY j.queue, j.urgency, j.place LIMIT wanted FOR UPDATE OF j SKIP LOCKED);
        ELSIF NOT flat[n] THEN
            picked := ARRAY(
                SELECT j.seq FROM @.jobs j WHERE j.queue = of_queue AND j.place IS NOT NULL AND j.seq <> ALL (known) AND j.type = ANY (of_types)
                ORDER BY j.queue, j.urgency, j.place LIMIT wanted FOR UPDATE OF j SKIP LOCKED);
        ELSIF cardinality(of_types) = 0 THEN
            picked := ARRAY(
                SELECT j.seq FROM @.jobs j WHERE j.place IS NOT NULL AND j.seq = ANY (ARRAY(
                    SELECT h.seq FROM generate_series(0, 4) level CROSS JOIN LATERAL (
                        SELECT i.seq, i.place FROM @.jobs i
                        WHERE i.queue = of_queue AND i.urgency = level AND i.place IS NOT NULL AND i.seq <> ALL (known)
                        ORDER BY i.queue, i.urgency, i.place LIMIT look) h
                    ORDER BY h.place LIMIT look))
                ORDER BY j.place LIMIT wanted FOR UPDATE OF j SKIP LOCKED);
        ELSE
            picked := ARRAY(
                SELECT j.seq FROM @.jobs j WHERE j.place IS NOT NULL AND j.seq = ANY (ARRAY(
                    SELECT h.seq FROM generate_series(0, 4) level CROSS JOIN LATERAL (
                        SELECT i.seq, i.place FROM @.jobs i
                        WHERE i.queue = of_queue AND i.urgency = level AND i.place IS NOT NULL AND i.seq <> ALL (known) AND i.type = ANY (of_types)
                        ORDER BY i.queue, i.urgency, i.place LIMIT look) h
                    ORDER BY h.place LIMIT look))
                ORDER BY j.place LIMIT wanted FOR UPDATE OF j SKIP LOCKED);
        END IF;
        CONTINUE WHEN cardinality(picked) = 0;
        known := known || picked;
        wanted := wanted - cardinality(picked);
        RETURN QUERY
            SELECT j.seq, j.state, j.lease_version, j.place, j.due_at, j.timer, j.record, j.told, p.kind, p.bytes, n
            FROM @.jobs j JOIN @.payloads p ON p.seq = j.seq WHERE j.seq = ANY (picked);
    END LOOP;
END $$;
