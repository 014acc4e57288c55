-- submit(): submits a job inside the caller's transaction.
--
-- This is a second encoder of job records. It writes the same bytes as crates/codec, which the test
-- submit_in_sql checks. Submissions that need more of the rules are refused.

-- Unsigned LEB128: seven bits per byte, least significant first.
CREATE FUNCTION @.encode_varint(n numeric) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    encoded bytea := ''::bytea;
    low integer;
BEGIN
    LOOP
        low := mod(n, 128)::integer;
        n := div(n, 128);
        IF n = 0 THEN
            RETURN encoded || set_byte('\x00'::bytea, 0, low);
        END IF;
        encoded := encoded || set_byte('\x00'::bytea, 0, low + 128);
    END LOOP;
END $$;

CREATE FUNCTION @.encode_zigzag(n bigint) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT @.encode_varint(CASE WHEN n >= 0 THEN n::numeric * 2 ELSE -(n::numeric) * 2 - 1 END)
$$;

CREATE FUNCTION @.encode_text(t text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT @.encode_varint(octet_length(convert_to(t, 'UTF8'))) || convert_to(t, 'UTF8')
$$;

CREATE FUNCTION @.encode_optional_text(t text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN t IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || @.encode_text(t) END
$$;

-- CRC-32 (IEEE), four bits at a time.
CREATE FUNCTION @.checksum(b bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    t CONSTANT bigint[] := ARRAY[0, 498536548, 997073096, 651767980, 1994146192, 1802195444, 1303535960, 1342533948, 3988292384, 4027552580, 3604390888,
        3412177804, 2607071920, 2262029012, 2685067896, 3183342108]::bigint[];
    c bigint := 4294967295;
    v integer;
BEGIN
    FOR i IN 0 .. length(b) - 1 LOOP
        v := get_byte(b, i);
        c := t[((c # v) & 15) + 1] # (c >> 4);
        c := t[((c # (v >> 4)) & 15) + 1] # (c >> 4);
    END LOOP;
    c := c # 4294967295;
    RETURN set_byte(set_byte(set_byte(set_byte('\x00000000'::bytea, 0, (c & 255)::int), 1, ((c >> 8) & 255)::int), 2, ((c >> 16) & 255)::int), 3, ((c >> 24) & 255)::int);
END $$;

CREATE FUNCTION @.decode_be_bigint(b bytea, at integer, n integer) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT ('x' || encode(substr(b, at + 1, n), 'hex'))::bit(64)::bigint
$$;

-- Id of a sequence number, as in crates/store-postgres/src/id_cipher.rs.
CREATE FUNCTION @.encrypt_id(seq bigint, secret bytea) RETURNS uuid LANGUAGE plpgsql VOLATILE STRICT AS $$
DECLARE
    front bigint := @.decode_be_bigint(secret, 0, 8);
    back bigint := @.decode_be_bigint(secret, 8, 8);
    l integer;
    r integer;
    swap integer;
    key bigint;
    hex text;
BEGIN
    r := ('x' || lpad(to_hex(seq & 4294967295), 8, '0'))::bit(32)::integer;
    l := ('x' || lpad(to_hex((seq >> 32) & 4294967295), 8, '0'))::bit(32)::integer;
    FOR round IN 0 .. 5 LOOP
        key := hashint4extended(round, front)
            # CASE round WHEN 0 THEN back ELSE ((back::bit(64) << (8 * round)) | (back::bit(64) >> (64 - 8 * round)))::bigint END;
        swap := l # ('x' || lpad(to_hex(hashint4extended(r, key) & 4294967295), 8, '0'))::bit(32)::integer;
        l := r;
        r := swap;
    END LOOP;
    hex := lpad(to_hex(l), 8, '0') || lpad(to_hex(r), 8, '0');
    -- UUID version 4: 48 bits, version, 12 bits, variant with 4 bits, random bits.
    RETURN (substr(hex, 1, 12) || '4' || substr(hex, 13, 3)
        || to_hex((B'10' || ('x' || substr(hex, 16, 1))::bit(4) || ('x' || substr(md5(gen_random_uuid()::text), 1, 1))::bit(2))::bit(8)::integer)
        || substr(md5(gen_random_uuid()::text), 1, 14))::uuid;
END $$;

-- 64-bit FNV-1a, as a signed number.
CREATE FUNCTION @.fnv1a(t text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    b bytea := convert_to(t, 'UTF8');
    h numeric := 14695981039346656037;
    low integer;
BEGIN
    FOR i IN 0 .. length(b) - 1 LOOP
        low := mod(h, 256)::integer;
        h := mod((h - low + (low # get_byte(b, i))) * 1099511628211, 18446744073709551616);
    END LOOP;
    RETURN CASE WHEN h >= 9223372036854775808 THEN h - 18446744073709551616 ELSE h END;
END $$;

-- Encodes a list of tags, or an object whose values are text or null.
CREATE FUNCTION @.encode_tags(tags jsonb) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    kind text := coalesce(jsonb_typeof(tags), 'null');
    n bigint;
    encoded bytea;
BEGIN
    IF kind = 'null' THEN
        RETURN '\x00'::bytea;
    ELSIF kind = 'array' THEN
        IF EXISTS (SELECT 1 FROM jsonb_array_elements(tags) e WHERE jsonb_typeof(e) <> 'string') THEN
            PERFORM @.raise_invalid('tags', 'must be texts');
        END IF;
        SELECT count(*), string_agg(@.encode_text(e #>> '{}'), ''::bytea ORDER BY o) INTO n, encoded FROM jsonb_array_elements(tags) WITH ORDINALITY x(e, o);
    ELSIF kind = 'object' THEN
        IF EXISTS (SELECT 1 FROM jsonb_each(tags) e WHERE jsonb_typeof(e.value) NOT IN ('string', 'null')) THEN
            PERFORM @.raise_invalid('tags', 'must have texts or null as values');
        END IF;
        SELECT count(*), string_agg(@.encode_text(e.key) || @.encode_optional_text(e.value), ''::bytea ORDER BY e.key COLLATE "C")
        INTO n, encoded FROM jsonb_each_text(tags) e;
    ELSE
        PERFORM @.raise_invalid('tags', 'must be a list or an object');
    END IF;
    IF n > 64 THEN
        PERFORM @.raise_invalid('tags', 'may be at most 64');
    ELSIF EXISTS (SELECT 1 FROM jsonb_array_elements_text(CASE kind WHEN 'array' THEN tags ELSE '[]' END) e WHERE e COLLATE "C" !~ '^[A-Za-z0-9_.:-]{1,128}$')
        OR EXISTS (SELECT 1 FROM jsonb_object_keys(CASE kind WHEN 'object' THEN tags ELSE '{}' END) e WHERE e COLLATE "C" !~ '^[A-Za-z0-9_.:-]{1,128}$') THEN
        PERFORM @.raise_invalid('tags', 'must be 1-128 characters of A-Z a-z 0-9 _ . - :');
    ELSIF EXISTS (SELECT 1 FROM jsonb_each_text(CASE kind WHEN 'object' THEN tags ELSE '{}' END) e WHERE length(e.value) > 256) THEN
        PERFORM @.raise_invalid('tags', 'must have values of at most 256 characters');
    END IF;
    RETURN CASE WHEN kind = 'array' THEN '\x02'::bytea ELSE '\x01'::bytea END || @.encode_varint(n) || coalesce(encoded, ''::bytea);
END $$;

-- Search terms of tags.
CREATE FUNCTION @.tag_terms(tags jsonb) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    SELECT e #>> '{}' FROM jsonb_array_elements(CASE WHEN jsonb_typeof(tags) = 'array' THEN tags ELSE '[]' END) e
    UNION SELECT term FROM jsonb_each_text(CASE WHEN jsonb_typeof(tags) = 'object' THEN tags ELSE '{}' END) o,
        LATERAL (VALUES (o.key), (o.key || ':' || o.value)) v(term) WHERE term IS NOT NULL
$$;

-- All search terms of a new job, as IndexedFields::terms in crates/store/src/query.rs.
CREATE FUNCTION @.job_terms(options jsonb) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    SELECT @.tag_terms(options->'tags')
    UNION SELECT E'\x01c' || lpad(to_hex(@.fnv1a(options->>'correlation_id')), 16, '0') WHERE options->>'correlation_id' IS NOT NULL
    UNION SELECT E'\x01k' || lpad(to_hex(@.fnv1a(options->>'idempotency_key')), 16, '0') WHERE options->>'idempotency_key' <> ''
$$;

CREATE FUNCTION @.raise_invalid(field text, problem text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: %', field, problem USING ERRCODE = '22023';
END $$;

-- Submits a job and returns its id. Options and SQLSTATEs: docs/postgresql.md.
CREATE FUNCTION @.submit(queue text, type text, payload jsonb, options jsonb DEFAULT '{}') RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_variable
<<local>>
DECLARE
    option_names CONSTANT text[] := ARRAY['priority', 'delay', 'run_at', 'idempotency_key', 'external_id', 'correlation_id', 'callback_url', 'hold', 'tags'];
    number integer;
    admission jsonb;
    tx record;
    name text;
    value jsonb;
    seq bigint;
    id uuid;
    bytes bytea := convert_to(payload::text, 'UTF8');
    priority smallint := array_position(ARRAY['critical', 'high', 'normal', 'low', 'bulk'], coalesce(options->>'priority', 'normal')) - 1;
    run_time timestamptz;
    millis numeric;
    run_at bigint;
    held boolean;
    state smallint;
    record bytea;
    path bytea;
    stored record;
    transitions bytea;
    queued bigint;
    due bigint;
    lifetime_ends_at bigint;
BEGIN
    IF queue IS NULL OR queue !~ '^[A-Za-z0-9_.:-]{1,128}$' THEN
        PERFORM @.raise_invalid('queue', 'must be 1-128 characters of A-Z a-z 0-9 _ . - :');
    END IF;
    IF type IS NULL OR length(type) NOT BETWEEN 1 AND 256 OR type ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        PERFORM @.raise_invalid('type', 'must be 1-256 printable characters');
    END IF;
    IF payload IS NULL THEN
        PERFORM @.raise_invalid('payload', 'must be JSON (use ''null'' for an empty payload)');
    END IF;
    IF EXISTS (SELECT FROM jsonb_path_query(payload, 'strict $.**{64}') deep WHERE jsonb_typeof(deep) IN ('array', 'object')) THEN
        PERFORM @.raise_invalid('payload', 'nests deeper than 64 levels');
    END IF;
    IF jsonb_typeof(options) IS DISTINCT FROM 'object' THEN
        PERFORM @.raise_invalid('options', 'must be an object');
    END IF;
    FOR name, value IN SELECT * FROM jsonb_each(options) LOOP
        IF name <> ALL (option_names) THEN
            PERFORM @.raise_invalid(name, 'unknown option; valid options: ' || array_to_string(option_names, ', '));
        ELSIF name = 'hold' AND jsonb_typeof(value) NOT IN ('boolean', 'null') THEN
            PERFORM @.raise_invalid(name, 'must be true or false');
        ELSIF name NOT IN ('hold', 'tags') AND jsonb_typeof(value) NOT IN ('string', 'null') THEN
            PERFORM @.raise_invalid(name, 'must be text');
        END IF;
    END LOOP;
    IF priority IS NULL THEN
        PERFORM @.raise_invalid('priority', 'must be one of critical, high, normal, low, bulk');
    END IF;
    IF options->>'delay' IS NOT NULL AND options->>'run_at' IS NOT NULL THEN
        PERFORM @.raise_invalid('delay', 'cannot be combined with run_at');
    END IF;
    IF length(options->>'idempotency_key') > 256 THEN
        PERFORM @.raise_invalid('idempotency_key', 'must be at most 256 characters');
    ELSIF length(options->>'correlation_id') > 256 THEN
        PERFORM @.raise_invalid('correlation_id', 'must be at most 256 characters');
    ELSIF length(options->>'callback_url') > 2048 THEN
        PERFORM @.raise_invalid('callback_url', 'must be at most 2048 characters');
    ELSIF options ? 'external_id' AND (length(options->>'external_id') NOT BETWEEN 1 AND 256 OR options->>'external_id' ~ '[\u0001-\u001f\u007f-\u009f]') THEN
        PERFORM @.raise_invalid('external_id', 'must be 1-256 printable characters');
    END IF;
    SELECT * INTO tx FROM @.begin_transaction(false, @LOCK, true, NULL);
    seq := tx.first_seq;
    SELECT n.number, q.admission INTO number, admission FROM @.queue_names n JOIN @.queues q ON q.number = n.number WHERE n.name = submit.queue;
    IF admission IS NULL OR NOT (admission->>'open')::boolean THEN
        RAISE EXCEPTION 'queue: "%" does not exist', queue USING ERRCODE = 'P0002';
    END IF;
    IF octet_length(bytes) > (admission->>'payload_max')::bigint THEN
        PERFORM @.raise_invalid('payload', format('has %s bytes; the limit is %s', octet_length(bytes), admission->>'payload_max'));
    END IF;
    IF options->>'external_id' IS NOT NULL AND NOT (admission->>'external_ids')::boolean THEN
        PERFORM @.raise_invalid('external_id', 'not accepted by this queue');
    END IF;
    IF options->>'run_at' IS NOT NULL THEN
        BEGIN
            run_time := (options->>'run_at')::timestamptz;
        EXCEPTION WHEN data_exception THEN
            PERFORM @.raise_invalid('run_at', 'must be a time');
        END;
        IF NOT isfinite(run_time) OR run_time >= '10000-01-01 00:00:00+00' THEN
            PERFORM @.raise_invalid('run_at', 'must be a time before the year 10000');
        END IF;
        run_at := floor(extract(epoch FROM run_time) * 1000);
    ELSIF options->>'delay' IS NOT NULL THEN
        BEGIN
            millis := ceil(extract(epoch FROM (options->>'delay')::interval) * 1000);
        EXCEPTION WHEN data_exception THEN
            PERFORM @.raise_invalid('delay', 'must be an interval');
        END;
        IF millis NOT BETWEEN 0 AND 36500 * 86400000.0 THEN
            PERFORM @.raise_invalid('delay', 'must be 0 to 36500 days');
        END IF;
        run_at := tx.now_ms + millis;
    END IF;
    IF run_at IS NOT NULL AND NOT (admission->>'delayed_start')::boolean AND (options ? 'run_at' OR run_at > tx.now_ms) THEN
        PERFORM @.raise_invalid('run_at', 'not accepted by this queue: delayed start is off');
    END IF;
    IF run_at <= tx.now_ms THEN
        run_at := NULL;
    END IF;
    held := coalesce((options->>'hold')::boolean, (admission->>'held')::boolean);
    IF nullif(options->>'idempotency_key', '') IS NOT NULL THEN
        IF admission->>'scope' IS NULL THEN
            PERFORM @.raise_invalid('idempotency_key', 'not accepted by this queue: its idempotency scope is "off"');
        END IF;
        path := @.encode_optional_text(CASE WHEN (admission->>'scope')::int IN (0, 1) THEN queue END)
            || @.encode_optional_text(CASE WHEN (admission->>'scope')::int = 0 THEN type END) || @.encode_text(options->>'idempotency_key');
        -- Waits for another transaction that has inserted the same key.
        INSERT INTO @.idempotency_keys AS k (path, seq, id, at) VALUES (path, seq, '\x00', tx.now_ms) ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT k.id, k.seq, k.at INTO stored FROM @.idempotency_keys k WHERE k.path = local.path FOR UPDATE;
            IF admission->>'window' IS NULL OR stored.at + (admission->>'window')::bigint > tx.now_ms THEN
                RETURN encode(stored.id, 'hex')::uuid;
            END IF;
        END IF;
    END IF;
    IF admission->>'max_queued' IS NOT NULL AND NOT held THEN
        PERFORM pg_advisory_xact_lock(@LOCK + 1 + number);
        SELECT coalesce(sum(CASE WHEN c.state = 9 THEN -c.jobs ELSE c.jobs END), 0) INTO queued FROM (
            SELECT a.state, a.jobs FROM @.queue_counts a WHERE a.queue = number
            UNION ALL SELECT (u.n - 1)::smallint, u.delta FROM @.queue_count_deltas a, unnest(a.deltas) WITH ORDINALITY AS u(delta, n) WHERE a.queue = number) c
        WHERE c.state IN (0, 1, 2, 4, 9);
        IF queued >= (admission->>'max_queued')::bigint THEN
            RAISE EXCEPTION 'queue: "%" is full: % jobs are queued', queue, queued USING ERRCODE = '53400';
        END IF;
    END IF;
    id := @.encrypt_id(seq, (SELECT s.id_secret FROM @.settings s));
    state := CASE WHEN held THEN 0 WHEN run_at IS NOT NULL THEN 2 ELSE 1 END;
    transitions := '\x00000000'::bytea;
    IF state <> 0 THEN
        transitions := transitions || '\x0100'::bytea || set_byte('\x00'::bytea, 0, state::int) || '\x0001'::bytea;
    END IF;
    record := '\x01'::bytea || uuid_send(id) || @.encode_varint(number + 1) || '\x00'::bytea || @.encode_text(type)
        || @.encode_varint((admission->>'policy')::numeric + 1) || @.encode_zigzag(tx.now_ms)
        || CASE state
            WHEN 0 THEN '\x0001'::bytea || CASE WHEN run_at IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || @.encode_zigzag(run_at - tx.now_ms) END
            WHEN 1 THEN '\x01'::bytea || @.encode_varint(seq)
            ELSE '\x02'::bytea || @.encode_zigzag(run_at - tx.now_ms) END
        || set_byte('\x00'::bytea, 0, priority::int) || '\x04'::bytea || '\x000000000000'::bytea || '\x00'::bytea || '\x00'::bytea || '\x00'::bytea
        || CASE WHEN state = 1 THEN '\x0100'::bytea ELSE '\x00'::bytea END || '\x00000000'::bytea
        || CASE WHEN admission->>'lifetime' IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || @.encode_zigzag((admission->>'lifetime')::bigint) END
        || @.encode_tags(options->'tags')
        || @.encode_optional_text(options->>'correlation_id') || @.encode_optional_text(options->>'callback_url') || @.encode_optional_text(options->>'external_id')
        || CASE WHEN path IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || @.encode_text(options->>'idempotency_key')
            || set_byte('\x00'::bytea, 0, (admission->>'scope')::int) || '\x00'::bytea || @.encode_text(type) END
        || '\x000000'::bytea || '\x00'::bytea || '\x01000000000100'::bytea || '\x00000000'::bytea || '\x00'::bytea || '\x00'::bytea
        || @.encode_varint(CASE WHEN state = 0 THEN 1 ELSE 2 END) || transitions;
    record := record || @.checksum(
        (SELECT string_agg(substr(int8send(seq), 9 - i, 1), ''::bytea ORDER BY i) FROM generate_series(1, 8) i) || record);
    due := CASE WHEN state = 2 THEN run_at END;
    lifetime_ends_at := tx.now_ms + (admission->>'lifetime')::bigint;
    INSERT INTO @.jobs (seq, ready_position, due_at, timer_kind, type_hash, lease_version, queue, state, effective_priority, priority, archivable, standalone, record)
    VALUES (seq, CASE WHEN state = 1 THEN seq END, least(due, lifetime_ends_at),
        CASE WHEN lifetime_ends_at <= coalesce(due, lifetime_ends_at) THEN 0 WHEN due IS NOT NULL THEN 3 END, @.fnv1a(type), 0, number, state, priority, priority, false,
        path IS NULL AND options->>'external_id' IS NULL AND options->>'correlation_id' IS NULL AND coalesce(jsonb_typeof(options->'tags'), 'null') = 'null', record);
    INSERT INTO @.payloads (seq, kind, bytes) VALUES (seq, 0, bytes);
    IF path IS NOT NULL THEN
        UPDATE @.idempotency_keys k SET seq = local.seq, id = uuid_send(local.id), at = tx.now_ms, prune_at = NULL WHERE k.path = local.path;
    END IF;
    IF options->>'external_id' IS NOT NULL THEN
        BEGIN
            INSERT INTO @.external_ids (queue, external_id, seq) VALUES (number, options->>'external_id', seq);
        EXCEPTION WHEN unique_violation THEN
            RAISE EXCEPTION 'external_id: "%" is already used in this queue', options->>'external_id' USING ERRCODE = '23505';
        END;
    END IF;
    INSERT INTO @.tags (term, seq) SELECT t, local.seq FROM @.job_terms(options) t ON CONFLICT DO NOTHING;
    INSERT INTO @.queue_count_deltas (queue, deltas)
    VALUES (number, ARRAY(SELECT CASE WHEN i = state OR (i = 9 AND held) THEN 1 ELSE 0 END FROM generate_series(0, 9) i));
    IF type = 'ocypod' THEN
        INSERT INTO @.queue_count_deltas (queue, deltas) VALUES (-1, '{1}');
    END IF;
    IF state = 1 THEN
        PERFORM pg_notify('longshore_@', 'sql - ' || queue);
    END IF;
    RETURN id;
END $$;
