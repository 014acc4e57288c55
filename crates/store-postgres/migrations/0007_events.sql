-- Events for the listeners of all nodes. Commits append to the table while "watched" is true. A
-- node that sets it holds the exclusive lock, and every change of it increments the catalog
-- version: later transactions of all nodes know. Nodes with listeners renew "watched_until"
-- (milliseconds since 1970); any node resets "watched" after that time.
ALTER TABLE @.settings ADD COLUMN watched boolean NOT NULL DEFAULT false, ADD COLUMN watched_until bigint NOT NULL DEFAULT 0;

-- The events of one transaction (crates/store-postgres/src/events/codec.rs). A node reads the rows
-- that its last snapshot did not see, and orders them by id. Rows are deleted after a minute. A
-- crash of PostgreSQL empties the table; the nodes then report a gap.
CREATE UNLOGGED TABLE @.events (
    id bigint GENERATED ALWAYS AS IDENTITY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at bigint NOT NULL DEFAULT floor(extract(epoch FROM clock_timestamp()) * 1000),
    body bytea NOT NULL
);
CREATE INDEX events_by_xid ON @.events (xid);

-- Appends the events of a transaction. Returns a value, so that it can be part of a SELECT.
CREATE FUNCTION @.append_event(body bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO @.events (body) VALUES (append_event.body);
    RETURN true;
END $$;
