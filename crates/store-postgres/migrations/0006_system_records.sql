-- Records beside the jobs: schedules, webhooks, deliveries, tokens, audit entries and operations.
CREATE SEQUENCE @.system_revisions;
CREATE TABLE @.system_records (
    kind smallint NOT NULL,
    key bytea NOT NULL,
    revision bigint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (kind, key)
);
-- Changes with every announced write of a kind, so that nodes know when to read their caches again.
CREATE TABLE @.system_versions (
    kind smallint PRIMARY KEY,
    version bigint NOT NULL
);
