//! Tables of the database: DDL, version, application id.

use longshore_core::ocypod::totals::Totals;
use longshore_store::{FormatError, StoreError};
use rusqlite::Connection;

use crate::error::sql;
use crate::meta;
use crate::sqlite::map_open_error;

/// Version of the tables. The store refuses any other version.
const VERSION: i64 = 1;
const SUPPORTED: &str = "an embedded store of version 1";
/// SQLite's `application_id` of a Longshore database ("Lngs").
const APPLICATION_ID: i32 = 0x4c6e_6773;

const TABLES: &str = "
CREATE TABLE meta(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
-- Jobs that are not finished, or whose completion is not propagated to all dependents yet.
CREATE TABLE live_jobs(seq INTEGER PRIMARY KEY, record BLOB NOT NULL);
-- Finished jobs. `type` is a hash; the record has the type itself.
CREATE TABLE finished_jobs(
  seq INTEGER PRIMARY KEY, queue INTEGER NOT NULL, state INTEGER NOT NULL, type INTEGER NOT NULL,
  prune_at INTEGER, record BLOB NOT NULL);
-- Queues, states and types that occur in each chunk of finished jobs.
CREATE TABLE finished_chunks(
  chunk INTEGER NOT NULL, queue INTEGER NOT NULL, state INTEGER NOT NULL, type INTEGER NOT NULL,
  PRIMARY KEY(chunk, queue, state, type)) WITHOUT ROWID;
-- Earliest prune time of each chunk of finished jobs.
CREATE TABLE chunk_prune_at(chunk INTEGER PRIMARY KEY, prune_at INTEGER NOT NULL);
-- Written at submission, read at claim. `kind`: 0 JSON, 1 binary.
CREATE TABLE payload(seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, checksum INTEGER NOT NULL, bytes BLOB NOT NULL);
CREATE TABLE idempotency_key(
  path BLOB PRIMARY KEY, seq INTEGER NOT NULL, id BLOB NOT NULL, at INTEGER NOT NULL, prune_at INTEGER,
  checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX idempotency_key_by_prune_at ON idempotency_key(prune_at) WHERE prune_at IS NOT NULL;
CREATE TABLE external_id(queue TEXT NOT NULL, external_id TEXT NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY(queue, external_id)) WITHOUT ROWID;
CREATE TABLE dependency_edge(dependency INTEGER NOT NULL, dependent INTEGER NOT NULL,
  PRIMARY KEY(dependency, dependent)) WITHOUT ROWID;
-- Search terms: tags, and hashes of correlation ids and idempotency keys (crates/store/src/query.rs).
CREATE TABLE tag(term TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(term, seq)) WITHOUT ROWID;
CREATE TABLE workflow(
  number INTEGER PRIMARY KEY, state INTEGER NOT NULL, operation_active INTEGER NOT NULL, record BLOB NOT NULL);
CREATE INDEX workflow_by_state ON workflow(state, number);
CREATE INDEX workflow_with_operation ON workflow(number) WHERE operation_active <> 0;
-- Members of a workflow, as ranges of job numbers.
CREATE TABLE member(workflow INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
  checksum INTEGER NOT NULL, PRIMARY KEY(workflow, first)) WITHOUT ROWID;
-- Members that were submitted with a reference.
CREATE TABLE member_ref(workflow INTEGER NOT NULL, name TEXT NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY(workflow, name)) WITHOUT ROWID;
CREATE TABLE queue(name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
-- Directives of workers, other than `run`.
CREATE TABLE worker_directive(name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
-- Schedules, webhooks, deliveries, tokens, audit entries and operations (crates/engine/src/system.rs).
CREATE TABLE system_record(kind INTEGER NOT NULL, key BLOB NOT NULL, revision INTEGER NOT NULL, record BLOB NOT NULL,
  PRIMARY KEY(kind, key)) WITHOUT ROWID;
-- Numbers that records use for names. `kind`: 0 queue, 1 type, 2 policy.
CREATE TABLE dictionary(kind INTEGER NOT NULL, number INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY(kind, number)) WITHOUT ROWID;
-- Number of finished jobs per queue and state.
CREATE TABLE finished_counts(queue TEXT NOT NULL, state INTEGER NOT NULL, jobs INTEGER NOT NULL,
  PRIMARY KEY(queue, state)) WITHOUT ROWID;
";

/// Source of a store's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMode {
    Real,
    Virtual,
}

impl ClockMode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Virtual => "virtual",
        }
    }
}

/// Creates the tables of a new store, or checks that an existing one can be opened. Returns whether
/// the store is new.
pub(crate) fn prepare(connection: &Connection, clock_mode: ClockMode) -> Result<bool, StoreError> {
    if is_empty(connection)? {
        return create(connection, clock_mode).map(|()| true);
    }
    check(connection)?;
    meta::refuse_backup(connection)?;
    match (meta::clock_mode(connection)?, clock_mode) {
        (ClockMode::Virtual, ClockMode::Real) => return Err(StoreError::Format(FormatError::VirtualTime)),
        (ClockMode::Real, ClockMode::Virtual) => return Err(StoreError::Format(FormatError::RealTime)),
        (ClockMode::Real, ClockMode::Real) | (ClockMode::Virtual, ClockMode::Virtual) => {}
    }
    connection.pragma_update(None, "journal_mode", "WAL").map_err(sql)?;
    Ok(false)
}

fn create(connection: &Connection, clock_mode: ClockMode) -> Result<(), StoreError> {
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(sql)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql)?;
    connection.pragma_update(None, "user_version", VERSION).map_err(sql)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(sql)?;
    let transaction = connection.unchecked_transaction().map_err(sql)?;
    transaction.execute_batch(TABLES).map_err(sql)?;
    meta::initialize(&transaction, clock_mode, &Totals::default()).map_err(sql)?;
    transaction.commit().map_err(sql)
}

fn is_empty(connection: &Connection) -> Result<bool, StoreError> {
    let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    Ok(tables.map_err(map_open_error)? == 0)
}

/// Checks that a database is a Longshore store of the supported version.
pub(crate) fn check(connection: &Connection) -> Result<(), StoreError> {
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(map_open_error)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql)?;
    if is_empty(connection)? {
        return Err(StoreError::Format(FormatError::EmptyDatabase));
    }
    if application != APPLICATION_ID {
        return Err(StoreError::Format(FormatError::ForeignDatabase));
    }
    if version != VERSION {
        let found = format!("a store of version {version}");
        return Err(StoreError::Format(FormatError::Version { found, supported: SUPPORTED.to_owned() }));
    }
    Ok(())
}
