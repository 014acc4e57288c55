-- View jobs_readable: decoded job records, for queries by hand. It decodes format 1 of
-- crates/codec; the test readable compares the two decoders. A read_* function takes the bytes and
-- an offset, and returns the value and the offset after it.

CREATE FUNCTION @.read_number(b bytea, INOUT at integer, OUT value bigint) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    byte integer := get_byte(b, at);
    shift integer := 7;
BEGIN
    value := byte & 127;
    at := at + 1;
    WHILE byte >= 128 LOOP
        byte := get_byte(b, at);
        value := value | ((byte & 127)::bigint << shift);
        shift := shift + 7;
        at := at + 1;
    END LOOP;
END $$;

-- Zigzag: 0, -1, 1, -2, …
CREATE FUNCTION @.read_signed(b bytea, INOUT at integer, OUT value bigint) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    read record := @.read_number(b, at);
BEGIN
    at := read.at;
    value := ((read.value >> 1) & 9223372036854775807) # -(read.value & 1);
END $$;

CREATE FUNCTION @.read_bytes(b bytea, INOUT at integer, OUT value bytea) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    read record := @.read_number(b, at);
BEGIN
    value := substr(b, read.at + 1, read.value::integer);
    at := read.at + read.value::integer;
END $$;

CREATE FUNCTION @.read_optional_signed(b bytea, INOUT at integer, OUT value bigint) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    read record;
BEGIN
    at := at + 1;
    IF get_byte(b, at - 1) = 1 THEN
        read := @.read_signed(b, at);
        at := read.at;
        value := read.value;
    END IF;
END $$;

CREATE FUNCTION @.read_optional_bytes(b bytea, INOUT at integer, OUT value bytea) LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    read record;
BEGIN
    at := at + 1;
    IF get_byte(b, at - 1) = 1 THEN
        read := @.read_bytes(b, at);
        at := read.at;
        value := read.value;
    END IF;
END $$;

-- A text with a zero byte cannot be stored in PostgreSQL's text type and is returned escaped.
CREATE FUNCTION @.readable_text(b bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN position('\x00'::bytea IN b) > 0 THEN encode(b, 'escape') ELSE convert_from(b, 'UTF8') END
$$;

CREATE FUNCTION @.readable_time(ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT '1970-01-01 00:00:00+00'::timestamptz + make_interval(secs => ms / 86400000 * 86400.0) + make_interval(secs => ms % 86400000 / 1000.0)
$$;

-- Decodes selected fields of a record, in the order of crates/codec/src/codec/job.rs. Returns NULLs
-- for a record of another format.
CREATE FUNCTION @.read_record(b bytea, OUT id uuid, OUT type text, OUT priority text, OUT attempt integer, OUT worker text, OUT created_at timestamptz,
    OUT updated_at timestamptz, OUT scheduled_at timestamptz, OUT started_at timestamptz, OUT last_heartbeat_at timestamptz, OUT run_at timestamptz,
    OUT lease_expires_at timestamptz, OUT ended_at timestamptz, OUT error_category text, OUT error_code text, OUT error_message text)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 10000 AS $$
DECLARE
    at integer := 17;
    state integer;
    created bigint;
    read record;
    tags integer;
BEGIN
    IF get_byte(b, 0) <> 1 THEN
        RETURN;
    END IF;
    id := encode(substr(b, 2, 16), 'hex')::uuid;
    -- Queue, type and policy: a dictionary number, or 0 and the value.
    FOR field IN 1 .. 3 LOOP
        read := @.read_number(b, at);
        at := read.at;
        IF read.value = 0 THEN
            read := @.read_bytes(b, at);
            at := read.at;
            IF field = 2 THEN
                type := @.readable_text(read.value);
            END IF;
        END IF;
    END LOOP;
    read := @.read_signed(b, at);
    created := read.value;
    created_at := @.readable_time(created);
    state := get_byte(b, read.at);
    at := read.at + 1;
    IF state = 0 THEN
        -- After the flag of a held job.
        read := @.read_optional_signed(b, at + 1);
        run_at := @.readable_time(created + read.value);
    ELSIF state = 1 THEN
        read := @.read_number(b, at);
    ELSIF state IN (2, 4) THEN
        read := @.read_signed(b, at);
        run_at := @.readable_time(created + read.value);
    ELSIF state = 3 THEN
        -- After the lease token.
        read := @.read_optional_bytes(b, at + 16);
        worker := @.readable_text(read.value);
        -- The lease duration is unsigned; skipping it as a signed number reads the same bytes.
        read := @.read_optional_signed(b, read.at);
        read := @.read_optional_signed(b, read.at);
        lease_expires_at := @.readable_time(created + read.value);
        read := @.read_optional_signed(b, read.at);
        read := @.read_optional_bytes(b, read.at);
        read := @.read_number(b, read.at);
    ELSE
        read := @.read_signed(b, at);
        ended_at := @.readable_time(created + read.value);
    END IF;
    priority := (ARRAY['critical', 'high', 'normal', 'low', 'bulk'])[get_byte(b, read.at) + 1];
    -- After the inherited priority: five counters, the unfinished dependents, the lease version.
    read := @.read_number(b, read.at + 2);
    attempt := read.value;
    FOR field IN 2 .. 7 LOOP
        read := @.read_number(b, read.at);
    END LOOP;
    -- After the pending propagation.
    read := @.read_signed(b, read.at + 1);
    updated_at := @.readable_time(created + read.value);
    FOR field IN 1 .. 6 LOOP
        read := @.read_optional_signed(b, read.at);
        CASE field
            WHEN 1 THEN scheduled_at := @.readable_time(created + read.value);
            WHEN 2 THEN started_at := @.readable_time(created + read.value);
            WHEN 4 THEN last_heartbeat_at := @.readable_time(created + read.value);
            ELSE NULL;
        END CASE;
    END LOOP;
    tags := get_byte(b, read.at);
    at := read.at + 1;
    IF tags <> 0 THEN
        read := @.read_number(b, at);
        at := read.at;
        FOR tag IN 1 .. read.value LOOP
            read := @.read_bytes(b, at);
            at := read.at;
            IF tags = 1 THEN
                read := @.read_optional_bytes(b, at);
                at := read.at;
            END IF;
        END LOOP;
    END IF;
    -- Correlation id, callback and external id.
    FOR field IN 1 .. 3 LOOP
        read := @.read_optional_bytes(b, at);
        at := read.at;
    END LOOP;
    -- Idempotency key with scope and type.
    read := @.read_optional_bytes(b, at);
    at := read.at;
    IF read.value IS NOT NULL THEN
        read := @.read_number(b, at + 1);
        at := read.at;
        IF read.value = 0 THEN
            read := @.read_bytes(b, at);
            at := read.at;
        END IF;
    END IF;
    -- Progress, checkpoint and result.
    FOR field IN 1 .. 3 LOOP
        read := @.read_optional_bytes(b, at);
        at := read.at;
    END LOOP;
    IF get_byte(b, at) = 1 THEN
        error_category := (ARRAY['temporary', 'permanent', 'timeout', 'cancelled', 'system'])[get_byte(b, at + 1) + 1];
        read := @.read_optional_bytes(b, at + 2);
        error_code := @.readable_text(read.value);
        read := @.read_bytes(b, read.at);
        error_message := @.readable_text(read.value);
    END IF;
END $$;

-- One row per stored job, live or archived. Queue and state are columns of the tables, so that
-- conditions on them are evaluated before records are decoded.
CREATE VIEW @.jobs_readable AS
    SELECT r.id, q.name AS queue, r.type,
        (ARRAY['pending', 'scheduled', 'delayed', 'running', 'retrying', 'completed', 'failed', 'dead_letter', 'cancelled'])[j.state + 1] AS state,
        r.priority, r.attempt, r.worker, r.created_at, r.updated_at, r.scheduled_at,
        r.started_at, r.last_heartbeat_at, r.run_at, r.lease_expires_at, r.ended_at, r.error_category, r.error_code, r.error_message, j.seq
    FROM (SELECT seq, queue, state, record FROM @.jobs UNION ALL SELECT seq, queue, state, record FROM @.archive) j
    LEFT JOIN @.queue_names q ON q.number = j.queue
    CROSS JOIN LATERAL @.read_record(j.record) r;
