-- Jobs submitted in SQL, inside of whatever transaction the caller has open. The bytes that are made here are those that the program makes for the same
-- job (proven by the test submit_in_sql); what needs more of the rules than this is refused.

-- What a submission has to know of its queue, kept in step by the program.
ALTER TABLE @.queues ADD COLUMN intake jsonb;

-- An unsigned number, seven bits to a byte.
CREATE FUNCTION @.bytes_of_number(n numeric) RETURNS bytea LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    out bytea := ''::bytea;
    low integer;
BEGIN
    LOOP
        low := mod(n, 128)::integer;
        n := div(n, 128);
        IF n = 0 THEN
            RETURN out || set_byte('\x00'::bytea, 0, low);
        END IF;
        out := out || set_byte('\x00'::bytea, 0, low + 128);
    END LOOP;
END $$;

CREATE FUNCTION @.bytes_of_signed(n bigint) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT @.bytes_of_number(CASE WHEN n >= 0 THEN n::numeric * 2 ELSE -(n::numeric) * 2 - 1 END)
$$;

CREATE FUNCTION @.bytes_of_text(t text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT @.bytes_of_number(octet_length(convert_to(t, 'UTF8'))) || convert_to(t, 'UTF8')
$$;

CREATE FUNCTION @.bytes_of_option(t text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN t IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || @.bytes_of_text(t) END
$$;

-- CRC-32 as everybody computes it, four bits at a time.
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

CREATE FUNCTION @.number_of_bytes(b bytea, at integer, n integer) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT ('x' || encode(substr(b, at + 1, n), 'hex'))::bit(64)::bigint
$$;

-- The id of a number, as in crates/store-postgres/src/seal.rs.
CREATE FUNCTION @.id_of(seq bigint, secret bytea) RETURNS uuid LANGUAGE plpgsql VOLATILE STRICT AS $$
DECLARE
    front bigint := @.number_of_bytes(secret, 0, 8);
    back bigint := @.number_of_bytes(secret, 8, 8);
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
    -- 48 bits, version, 12 bits, variant with 4 bits, and chance.
    RETURN (substr(hex, 1, 12) || '4' || substr(hex, 13, 3)
        || to_hex((B'10' || ('x' || substr(hex, 16, 1))::bit(4) || ('x' || substr(md5(gen_random_uuid()::text), 1, 1))::bit(2))::bit(8)::integer)
        || substr(md5(gen_random_uuid()::text), 1, 14))::uuid;
END $$;

-- FNV-1a, as a signed number.
CREATE FUNCTION @.hash_of(t text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT AS $$
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

-- A list of tags, or keys with values that may be null; anything else is refused.
CREATE FUNCTION @.bytes_of_tags(tags jsonb) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    kind text := coalesce(jsonb_typeof(tags), 'null');
    n bigint;
    out bytea;
BEGIN
    IF kind = 'null' THEN
        RETURN '\x00'::bytea;
    ELSIF kind = 'array' THEN
        IF EXISTS (SELECT 1 FROM jsonb_array_elements(tags) e WHERE jsonb_typeof(e) <> 'string') THEN
            PERFORM @.refuse('tags', 'must be texts');
        END IF;
        SELECT count(*), string_agg(@.bytes_of_text(e #>> '{}'), ''::bytea ORDER BY o) INTO n, out FROM jsonb_array_elements(tags) WITH ORDINALITY x(e, o);
    ELSIF kind = 'object' THEN
        IF EXISTS (SELECT 1 FROM jsonb_each(tags) e WHERE jsonb_typeof(e.value) NOT IN ('string', 'null')) THEN
            PERFORM @.refuse('tags', 'must have texts or null as values');
        END IF;
        SELECT count(*), string_agg(@.bytes_of_text(e.key) || @.bytes_of_option(e.value), ''::bytea ORDER BY e.key COLLATE "C")
        INTO n, out FROM jsonb_each_text(tags) e;
    ELSE
        PERFORM @.refuse('tags', 'must be a list or an object');
    END IF;
    IF n > 64 THEN
        PERFORM @.refuse('tags', 'may be at most 64');
    ELSIF EXISTS (SELECT 1 FROM jsonb_array_elements_text(CASE kind WHEN 'array' THEN tags ELSE '[]' END) e WHERE e COLLATE "C" !~ '^[A-Za-z0-9_.:-]{1,128}$')
        OR EXISTS (SELECT 1 FROM jsonb_object_keys(CASE kind WHEN 'object' THEN tags ELSE '{}' END) e WHERE e COLLATE "C" !~ '^[A-Za-z0-9_.:-]{1,128}$') THEN
        PERFORM @.refuse('tags', 'must be 1-128 characters of A-Z a-z 0-9 _ . - :');
    ELSIF EXISTS (SELECT 1 FROM jsonb_each_text(CASE kind WHEN 'object' THEN tags ELSE '{}' END) e WHERE length(e.value) > 256) THEN
        PERFORM @.refuse('tags', 'must have values of at most 256 characters');
    END IF;
    RETURN CASE WHEN kind = 'array' THEN '\x02'::bytea ELSE '\x01'::bytea END || @.bytes_of_number(n) || coalesce(out, ''::bytea);
END $$;

-- The words of the index that tags add.
CREATE FUNCTION @.words_of_tags(tags jsonb) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    SELECT e #>> '{}' FROM jsonb_array_elements(CASE WHEN jsonb_typeof(tags) = 'array' THEN tags ELSE '[]' END) e
    UNION SELECT w FROM jsonb_each_text(CASE WHEN jsonb_typeof(tags) = 'object' THEN tags ELSE '{}' END) o,
        LATERAL (VALUES (o.key), (o.key || ':' || o.value)) v(w) WHERE w IS NOT NULL
$$;

-- All words of the index for a new job. "words" of crates/store/src/query.rs makes the same.
CREATE FUNCTION @.words_of_job(options jsonb) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    SELECT @.words_of_tags(options->'tags')
    UNION SELECT E'\x01c' || lpad(to_hex(@.hash_of(options->>'correlation_id')), 16, '0') WHERE options->>'correlation_id' IS NOT NULL
    UNION SELECT E'\x01k' || lpad(to_hex(@.hash_of(options->>'idempotency_key')), 16, '0') WHERE options->>'idempotency_key' <> ''
$$;

CREATE FUNCTION @.refuse(field text, problem text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: %', field, problem USING ERRCODE = '22023';
END $$;

CREATE FUNCTION @.submit(queue text, type text, payload jsonb, options jsonb DEFAULT '{}') RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_variable
<<here>>
DECLARE
    k CONSTANT text[] := ARRAY['priority', 'delay', 'run_at', 'idempotency_key', 'external_id', 'correlation_id', 'callback_url', 'hold', 'tags'];
    number integer;
    intake jsonb;
    turn record;
    name text;
    value jsonb;
    seq bigint;
    id uuid;
    bytes bytea := convert_to(payload::text, 'UTF8');
    priority smallint := array_position(ARRAY['critical', 'high', 'normal', 'low', 'bulk'], coalesce(options->>'priority', 'normal')) - 1;
    moment timestamptz;
    millis numeric;
    run_at bigint;
    held boolean;
    state smallint;
    record bytea;
    path bytea;
    known record;
    moves bytea;
    queued bigint;
    due bigint;
    lapses bigint;
BEGIN
    IF queue IS NULL OR queue !~ '^[A-Za-z0-9_.:-]{1,128}$' THEN
        PERFORM @.refuse('queue', 'must be 1-128 characters of A-Z a-z 0-9 _ . - :');
    END IF;
    IF type IS NULL OR length(type) NOT BETWEEN 1 AND 256 OR type ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        PERFORM @.refuse('type', 'must be 1-256 printable characters');
    END IF;
    IF payload IS NULL THEN
        PERFORM @.refuse('payload', 'must be JSON; for nothing give ''null''');
    END IF;
    IF EXISTS (SELECT FROM jsonb_path_query(payload, 'strict $.**{64}') deep WHERE jsonb_typeof(deep) IN ('array', 'object')) THEN
        PERFORM @.refuse('payload', 'nests deeper than 64 levels');
    END IF;
    IF jsonb_typeof(options) IS DISTINCT FROM 'object' THEN
        PERFORM @.refuse('options', 'must be an object');
    END IF;
    FOR name, value IN SELECT * FROM jsonb_each(options) LOOP
        IF name <> ALL (k) THEN
            PERFORM @.refuse(name, 'is not known here; known are ' || array_to_string(k, ', '));
        ELSIF name = 'hold' AND jsonb_typeof(value) NOT IN ('boolean', 'null') THEN
            PERFORM @.refuse(name, 'must be true or false');
        ELSIF name NOT IN ('hold', 'tags') AND jsonb_typeof(value) NOT IN ('string', 'null') THEN
            PERFORM @.refuse(name, 'must be text');
        END IF;
    END LOOP;
    IF priority IS NULL THEN
        PERFORM @.refuse('priority', 'must be one of critical, high, normal, low, bulk');
    END IF;
    IF options->>'delay' IS NOT NULL AND options->>'run_at' IS NOT NULL THEN
        PERFORM @.refuse('delay', 'and run_at exclude each other');
    END IF;
    IF length(options->>'idempotency_key') > 256 THEN
        PERFORM @.refuse('idempotency_key', 'must be at most 256 characters');
    ELSIF length(options->>'correlation_id') > 256 THEN
        PERFORM @.refuse('correlation_id', 'must be at most 256 characters');
    ELSIF length(options->>'callback_url') > 2048 THEN
        PERFORM @.refuse('callback_url', 'must be at most 2048 characters');
    ELSIF options ? 'external_id' AND (length(options->>'external_id') NOT BETWEEN 1 AND 256 OR options->>'external_id' ~ '[\u0001-\u001f\u007f-\u009f]') THEN
        PERFORM @.refuse('external_id', 'must be 1-256 printable characters');
    END IF;
    SELECT * INTO turn FROM @.open_turn(false, @LOCK, true, NULL);
    seq := turn.first_number;
    SELECT n.number, q.intake INTO number, intake FROM @.queue_names n JOIN @.queues q ON q.number = n.number WHERE n.name = submit.queue;
    IF intake IS NULL OR NOT (intake->>'open')::boolean THEN
        RAISE EXCEPTION 'queue: there is no queue "%"', queue USING ERRCODE = 'P0002';
    END IF;
    IF octet_length(bytes) > (intake->>'payload_max')::bigint THEN
        PERFORM @.refuse('payload', format('has %s bytes, at most %s are taken', octet_length(bytes), intake->>'payload_max'));
    END IF;
    IF options->>'external_id' IS NOT NULL AND NOT (intake->>'external_ids')::boolean THEN
        PERFORM @.refuse('external_id', 'is not taken by this queue');
    END IF;
    IF options->>'run_at' IS NOT NULL THEN
        BEGIN
            moment := (options->>'run_at')::timestamptz;
        EXCEPTION WHEN data_exception THEN
            PERFORM @.refuse('run_at', 'must be a time');
        END;
        IF NOT isfinite(moment) OR moment >= '10000-01-01 00:00:00+00' THEN
            PERFORM @.refuse('run_at', 'must be a time before the year 10000');
        END IF;
        run_at := floor(extract(epoch FROM moment) * 1000);
    ELSIF options->>'delay' IS NOT NULL THEN
        BEGIN
            millis := ceil(extract(epoch FROM (options->>'delay')::interval) * 1000);
        EXCEPTION WHEN data_exception THEN
            PERFORM @.refuse('delay', 'must be an interval');
        END;
        IF millis NOT BETWEEN 0 AND 36500 * 86400000.0 THEN
            PERFORM @.refuse('delay', 'must be 0 to 36500 days');
        END IF;
        run_at := turn.now_ms + millis;
    END IF;
    IF run_at IS NOT NULL AND NOT (intake->>'delayed_start')::boolean AND (options ? 'run_at' OR run_at > turn.now_ms) THEN
        PERFORM @.refuse('run_at', 'is not taken by this queue: it has no delayed start');
    END IF;
    IF run_at <= turn.now_ms THEN
        run_at := NULL;
    END IF;
    held := coalesce((options->>'hold')::boolean, (intake->>'held')::boolean);
    IF nullif(options->>'idempotency_key', '') IS NOT NULL THEN
        IF intake->>'scope' IS NULL THEN
            PERFORM @.refuse('idempotency_key', 'is not taken by this queue: its idempotency scope is "off"');
        END IF;
        path := @.bytes_of_option(CASE WHEN (intake->>'scope')::int IN (0, 1) THEN queue END)
            || @.bytes_of_option(CASE WHEN (intake->>'scope')::int = 0 THEN type END) || @.bytes_of_text(options->>'idempotency_key');
        -- Whoever else has this key in hand is waited for.
        INSERT INTO @.keys AS had (path, seq, id, at) VALUES (path, seq, '\x00', turn.now_ms) ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT had.id, had.seq, had.at INTO known FROM @.keys had WHERE had.path = here.path FOR UPDATE;
            IF intake->>'window' IS NULL OR known.at + (intake->>'window')::bigint > turn.now_ms THEN
                RETURN encode(known.id, 'hex')::uuid;
            END IF;
        END IF;
    END IF;
    IF intake->>'max_queued' IS NOT NULL AND NOT held THEN
        PERFORM pg_advisory_xact_lock(@LOCK + 1 + number);
        SELECT coalesce(sum(CASE WHEN c.state = 9 THEN -c.jobs ELSE c.jobs END), 0) INTO queued FROM (
            SELECT a.state, a.jobs FROM @.counts a WHERE a.queue = number
            UNION ALL SELECT (u.n - 1)::smallint, u.change FROM @.count_changes a, unnest(a.changes) WITH ORDINALITY AS u(change, n) WHERE a.queue = number) c
        WHERE c.state IN (0, 1, 2, 4, 9);
        IF queued >= (intake->>'max_queued')::bigint THEN
            RAISE EXCEPTION 'queue: "%" is full: % jobs wait', queue, queued USING ERRCODE = '53400';
        END IF;
    END IF;
    id := @.id_of(seq, (SELECT s.id_secret FROM @.settings s));
    state := CASE WHEN held THEN 0 WHEN run_at IS NOT NULL THEN 2 ELSE 1 END;
    moves := '\x00000000'::bytea;
    IF state <> 0 THEN
        moves := moves || '\x0100'::bytea || set_byte('\x00'::bytea, 0, state::int) || '\x0001'::bytea;
    END IF;
    record := '\x01'::bytea || uuid_send(id) || @.bytes_of_number(number + 1) || '\x00'::bytea || @.bytes_of_text(type)
        || @.bytes_of_number((intake->>'policy')::numeric + 1) || @.bytes_of_signed(turn.now_ms)
        || CASE state
            WHEN 0 THEN '\x0001'::bytea || CASE WHEN run_at IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || @.bytes_of_signed(run_at - turn.now_ms) END
            WHEN 1 THEN '\x01'::bytea || @.bytes_of_number(seq)
            ELSE '\x02'::bytea || @.bytes_of_signed(run_at - turn.now_ms) END
        || set_byte('\x00'::bytea, 0, priority::int) || '\x04'::bytea || '\x000000000000'::bytea || '\x00'::bytea || '\x00'::bytea || '\x00'::bytea
        || CASE WHEN state = 1 THEN '\x0100'::bytea ELSE '\x00'::bytea END || '\x00000000'::bytea
        || CASE WHEN intake->>'lifetime' IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || @.bytes_of_signed((intake->>'lifetime')::bigint) END
        || @.bytes_of_tags(options->'tags')
        || @.bytes_of_option(options->>'correlation_id') || @.bytes_of_option(options->>'callback_url') || @.bytes_of_option(options->>'external_id')
        || CASE WHEN path IS NULL THEN '\x00'::bytea ELSE '\x01'::bytea || @.bytes_of_text(options->>'idempotency_key')
            || set_byte('\x00'::bytea, 0, (intake->>'scope')::int) || '\x00'::bytea || @.bytes_of_text(type) END
        || '\x000000'::bytea || '\x00'::bytea || '\x01000000000100'::bytea || '\x00000000'::bytea || '\x00'::bytea || '\x00'::bytea
        || @.bytes_of_number(CASE WHEN state = 0 THEN 1 ELSE 2 END) || moves;
    record := record || @.checksum(
        (SELECT string_agg(substr(int8send(seq), 9 - i, 1), ''::bytea ORDER BY i) FROM generate_series(1, 8) i) || record);
    due := CASE WHEN state = 2 THEN run_at END;
    lapses := turn.now_ms + (intake->>'lifetime')::bigint;
    INSERT INTO @.jobs (seq, place, due_at, timer, type, lease_version, queue, state, urgency, priority, over, plain, record)
    VALUES (seq, CASE WHEN state = 1 THEN seq END, least(due, lapses),
        CASE WHEN lapses <= coalesce(due, lapses) THEN 0 WHEN due IS NOT NULL THEN 3 END, @.hash_of(type), 0, number, state, priority, priority, false,
        path IS NULL AND options->>'external_id' IS NULL AND options->>'correlation_id' IS NULL AND coalesce(jsonb_typeof(options->'tags'), 'null') = 'null', record);
    INSERT INTO @.payloads (seq, kind, bytes) VALUES (seq, 0, bytes);
    IF path IS NOT NULL THEN
        UPDATE @.keys had SET seq = here.seq, id = uuid_send(here.id), at = turn.now_ms, purge_at = NULL WHERE had.path = here.path;
    END IF;
    IF options->>'external_id' IS NOT NULL THEN
        BEGIN
            INSERT INTO @.external_ids (queue, external_id, seq) VALUES (number, options->>'external_id', seq);
        EXCEPTION WHEN unique_violation THEN
            RAISE EXCEPTION 'external_id: "%" is taken in this queue', options->>'external_id' USING ERRCODE = '23505';
        END;
    END IF;
    INSERT INTO @.tags (word, seq) SELECT w, here.seq FROM @.words_of_job(options) w ON CONFLICT DO NOTHING;
    INSERT INTO @.count_changes (queue, changes)
    VALUES (number, ARRAY(SELECT CASE WHEN i = state OR (i = 9 AND held) THEN 1 ELSE 0 END FROM generate_series(0, 9) i));
    IF type = 'ocypod' THEN
        INSERT INTO @.count_changes (queue, changes) VALUES (-1, '{1}');
    END IF;
    IF state = 1 THEN
        PERFORM pg_notify('longshore_@', 'sql - ' || queue);
    END IF;
    RETURN id;
END $$;
