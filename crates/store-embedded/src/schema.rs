//! The database: its tables, its version, its notes, and connections to it.

use std::path::{Path, PathBuf};

use longshore_core::ocypod::totals::Totals;
use longshore_core::time::Timestamp;
use longshore_store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};

use crate::error::{damaged, sql};
use longshore_codec::codec::{self, append_checksum, checksum, verify_checksum};

/// Version of the tables. A newer one is refused, never rewritten.
pub(crate) const SCHEMA: i64 = 1;
pub(crate) const SUPPORTED: &str = "an embedded store of version 1";
/// Marks the database as ours ("Lngs").
const APPLICATION_ID: i32 = 0x4c6e_6773;

pub(crate) const DATABASE: &str = "longshore.db";

const TABLES: &str = "
CREATE TABLE meta(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
-- Jobs that take part: not ended, or still owing their dependents the news.
CREATE TABLE live(seq INTEGER PRIMARY KEY, record BLOB NOT NULL);
-- Jobs that have ended. `type` is a hash: the record tells.
CREATE TABLE ended(
  seq INTEGER PRIMARY KEY, queue INTEGER NOT NULL, state INTEGER NOT NULL, type INTEGER NOT NULL,
  prune_at INTEGER, record BLOB NOT NULL);
-- What each chunk of ended jobs holds: which queues, states and types, and nothing earlier to prune than this.
CREATE TABLE ended_chunk(chunk INTEGER NOT NULL, queue INTEGER NOT NULL, state INTEGER NOT NULL, type INTEGER NOT NULL,
  PRIMARY KEY(chunk, queue, state, type)) WITHOUT ROWID;
CREATE TABLE prune_chunk(chunk INTEGER PRIMARY KEY, prune_at INTEGER NOT NULL);
-- Written once, read at claim. `kind`: 0 JSON, 1 binary.
CREATE TABLE payload(seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, checksum INTEGER NOT NULL, bytes BLOB NOT NULL);
CREATE TABLE key(
  path BLOB PRIMARY KEY, seq INTEGER NOT NULL, id BLOB NOT NULL, at INTEGER NOT NULL, purge_at INTEGER,
  checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX key_by_purge ON key(purge_at) WHERE purge_at IS NOT NULL;
CREATE TABLE external_id(queue TEXT NOT NULL, external_id TEXT NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY(queue, external_id)) WITHOUT ROWID;
CREATE TABLE edge(dependency INTEGER NOT NULL, dependent INTEGER NOT NULL, PRIMARY KEY(dependency, dependent)) WITHOUT ROWID;
-- Words that jobs are listed by: tags, and hashes of correlation ids and idempotency keys (crates/store/src/query.rs).
CREATE TABLE tag(word TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(word, seq)) WITHOUT ROWID;
-- Their members are numbers from `first` to `last`; names lead to those that were given one.
CREATE TABLE workflow(number INTEGER PRIMARY KEY, state INTEGER NOT NULL, errand INTEGER NOT NULL, record BLOB NOT NULL);
CREATE INDEX workflow_by_state ON workflow(state, number);
CREATE INDEX workflow_with_errand ON workflow(number) WHERE errand <> 0;
CREATE TABLE member(workflow INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY(workflow, first)) WITHOUT ROWID;
CREATE TABLE member_name(workflow INTEGER NOT NULL, name TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(workflow, name)) WITHOUT ROWID;
CREATE TABLE queue(name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
-- Numbers of names. `kind`: 0 queue, 1 type, 2 policy.
CREATE TABLE name(kind INTEGER NOT NULL, number INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY(kind, number)) WITHOUT ROWID;
-- How many ended jobs each queue has, kept by increments.
CREATE TABLE ended_count(queue TEXT NOT NULL, state INTEGER NOT NULL, jobs INTEGER NOT NULL, PRIMARY KEY(queue, state)) WITHOUT ROWID;
";

/// Whether time passes by itself in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMode {
    Real,
    Virtual,
}

impl ClockMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Virtual => "virtual",
        }
    }
}

/// Where a database is.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// A name of a shared database in memory, gone with its last connection.
    Memory(String),
    File(PathBuf),
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Reader,
    Checkpointer,
}

impl Location {
    pub(crate) fn open(&self, role: Role) -> rusqlite::Result<Connection> {
        let common = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection = match self {
            Self::Memory(name) => {
                let flags = common | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
                Connection::open_with_flags(format!("file:/{name}?vfs=memdb"), flags)?
            }
            Self::File(path) => {
                let access = match role {
                    Role::Writer => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
                    Role::Checkpointer => OpenFlags::SQLITE_OPEN_READ_WRITE,
                    Role::Reader => OpenFlags::SQLITE_OPEN_READ_ONLY,
                };
                // Symbolic links are not followed: the directory is what was named.
                Connection::open_with_flags(path, common | access | OpenFlags::SQLITE_OPEN_NOFOLLOW)?
            }
        };
        connection.set_prepared_statement_cache_capacity(128);
        // The log is moved when we say so: never on the way out of a store whose disk has failed.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        match role {
            Role::Writer => {
                connection.pragma_update(None, "cache_size", -131_072)?;
                connection.pragma_update(None, "wal_autocheckpoint", 0)?;
            }
            Role::Reader => connection.pragma_update(None, "query_only", true)?,
            Role::Checkpointer => connection.pragma_update(None, "wal_autocheckpoint", 0)?,
        }
        Ok(connection)
    }
}

/// A database without its log, that nobody writes to meanwhile. Nothing is made beside it.
pub(crate) fn open_immutable(database: &Path) -> rusqlite::Result<Connection> {
    let path = std::path::absolute(database).unwrap_or_else(|_| database.to_owned());
    let path = path.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(database.to_owned()))?;
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file:{path}?immutable=1"), flags)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Makes the tables of a new store, or makes sure that an old one is ours.
pub(crate) fn prepare(connection: &Connection, time: ClockMode) -> Result<(), StoreError> {
    if empty(connection)? {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(sql)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql)?;
        connection.pragma_update(None, "user_version", SCHEMA).map_err(sql)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(sql)?;
        let transaction = connection.unchecked_transaction().map_err(sql)?;
        transaction.execute_batch(TABLES).map_err(sql)?;
        let mut rng = longshore_codec::OsRng::default();
        let rng: &mut dyn longshore_core::rng::Rng = &mut rng;
        set_note(&transaction, ID_KEY, rng.bytes16().to_vec()).map_err(sql)?;
        set_note(&transaction, TIME, time.as_str().into()).map_err(sql)?;
        set_meta(&transaction, "epoch", 1_i64).map_err(sql)?;
        set_meta(&transaction, "next_number", 1_i64).map_err(sql)?;
        set_totals(&transaction, &Totals::default()).map_err(sql)?;
        set_commit_seq(&transaction, 0, 0).map_err(sql)?;
        return transaction.commit().map_err(sql);
    }
    check(connection)?;
    refuse_backup(connection)?;
    let kept = meta_bytes(connection, TIME)?;
    if kept != time.as_str().as_bytes() {
        let found = format!("a store that was made in {} time", String::from_utf8_lossy(&kept));
        return Err(StoreError::Format { found, supported: "one of the same kind of time" });
    }
    connection.pragma_update(None, "journal_mode", "WAL").map_err(sql)
}

fn empty(connection: &Connection) -> Result<bool, StoreError> {
    let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    Ok(tables.map_err(map_open_error)? == 0)
}

/// Makes sure that a database is one of ours, of a version this program knows.
pub(crate) fn check(connection: &Connection) -> Result<(), StoreError> {
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(map_open_error)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql)?;
    if empty(connection)? {
        let found = "an empty database, as a first start leaves it that did not come to its end".to_owned();
        return Err(StoreError::Format { found, supported: SUPPORTED });
    }
    if application != APPLICATION_ID {
        return Err(StoreError::Format { found: "a database of another program".to_owned(), supported: SUPPORTED });
    }
    if version != SCHEMA {
        return Err(StoreError::Format { found: format!("a store of version {version}"), supported: SUPPORTED });
    }
    Ok(())
}

/// Something else may have been put where the database should be.
pub(crate) fn map_open_error(error: rusqlite::Error) -> StoreError {
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        let found = format!("a {DATABASE} that is not one of ours, or whose beginning is damaged");
        return StoreError::Format { found, supported: SUPPORTED };
    }
    sql(error)
}

/// How time passes in a store that is there.
pub(crate) fn time(connection: &Connection) -> Result<ClockMode, StoreError> {
    let kept = meta_bytes(connection, TIME)?;
    let kind = [ClockMode::Real, ClockMode::Virtual].into_iter().find(|kind| kind.as_str().as_bytes() == kept);
    kind.ok_or_else(|| damaged(DAMAGED_NOTES))
}

const ID_KEY: &str = "id_key";
const TIME: &str = "time";
const MARK: &str = "mark";
const LIVE_JOBS: &str = "live_jobs";
/// Only in stores of real time.
const SEEN: &str = "seen";
/// Only in copies.
const BACKUP: &str = "backup";

/// All there are.
pub(crate) const META_KEYS: [&str; 9] = [ID_KEY, TIME, "epoch", "next_number", TOTALS, MARK, LIVE_JOBS, SEEN, BACKUP];

/// Leases that were given before the copy was made, or after it by the original, must not be good in a store that goes on from here: it has to be restored first.
pub(crate) fn mark_as_backup(connection: &Connection) -> rusqlite::Result<()> {
    set_note(connection, BACKUP, Vec::new())
}

pub(crate) fn clear_backup_flag(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM meta WHERE key = ?1", [BACKUP]).map(drop)
}

/// Whoever is about to work with the jobs wants a store.
pub(crate) fn refuse_backup(connection: &Connection) -> Result<(), StoreError> {
    match find_note(connection, BACKUP)? {
        Some(_) => Err(StoreError::Format {
            found: "a backup".to_owned(),
            supported: "a store made from it by `longshore restore`",
        }),
        None => Ok(()),
    }
}

/// The secret that leads from ids to records. Damage to it would make every id unknown.
pub(crate) fn id_key(connection: &Connection) -> Result<[u8; 16], StoreError> {
    meta_bytes(connection, ID_KEY)?.try_into().map_err(|_| damaged(DAMAGED_NOTES))
}

/// A number that grows with every commit, so that a log which has lost some can be told by it: see [`crate::log`]. The totals lie on the same page, so it costs none of its own.
pub(crate) fn mark(connection: &Connection) -> Result<i64, StoreError> {
    meta(connection, MARK)
}

/// The mark of a commit, and how many live jobs there are after it.
pub(crate) fn set_commit_seq(connection: &Connection, mark: i64, live_jobs: u64) -> rusqlite::Result<()> {
    let live = [mark.to_le_bytes(), live_jobs.to_le_bytes()].as_flattened().to_vec();
    set_note(connection, LIVE_JOBS, live)?;
    set_meta(connection, MARK, mark)
}

/// The mark of a commit that moves no job.
pub(crate) fn bump_commit_seq(connection: &Connection, mark: i64) -> rusqlite::Result<()> {
    match live_jobs(connection) {
        Ok(Some(live_jobs)) => set_commit_seq(connection, mark, live_jobs),
        // Of what cannot be read nothing is said: whoever opens the store next finds out.
        Ok(None) | Err(_) => set_meta(connection, MARK, mark),
    }
}

/// The instant of the last commit. `None`: the store is in virtual time, or an older program has made it.
pub(crate) fn seen(connection: &Connection) -> Result<Option<Timestamp>, StoreError> {
    let Some(seen) = find_note(connection, SEEN)? else { return Ok(None) };
    let seen = seen.try_into().map_err(|_| damaged(DAMAGED_NOTES))?;
    Ok(Some(Timestamp::from_millis(i64::from_le_bytes(seen))))
}

pub(crate) fn set_seen(connection: &Connection, seen: Timestamp) -> rusqlite::Result<()> {
    set_meta(connection, SEEN, seen.as_millis())
}

/// How many live jobs there must be: pages that are missing from a table leave no other trace in it. `None`: the last commit was of an older program, which did not count
/// them.
pub(crate) fn live_jobs(connection: &Connection) -> Result<Option<u64>, StoreError> {
    let Some(noted) = find_note(connection, LIVE_JOBS)? else { return Ok(None) };
    let (words, _) = noted.as_chunks::<8>();
    let [noted_at, live_jobs] = *words else { return Err(damaged(DAMAGED_NOTES)) };
    let current = i64::from_le_bytes(noted_at) == mark(connection)?;
    Ok(current.then_some(u64::from_le_bytes(live_jobs)))
}

/// Refuses a table of live jobs that has lost or gained some.
pub(crate) fn check_live_jobs(connection: &Connection, found: u64) -> Result<(), StoreError> {
    match live_jobs(connection)? {
        Some(noted) if noted != found => {
            Err(damaged(&format!("table \"live\" holds {found} jobs, and {noted} were written")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Under which the totals of the Ocypod dialect are kept.
const TOTALS: &str = "totals";

pub(crate) fn totals(connection: &Connection) -> Result<Totals, StoreError> {
    codec::totals::decode(&meta_bytes(connection, TOTALS)?).map_err(|_| damaged(DAMAGED_NOTES))
}

pub(crate) fn set_totals(connection: &Connection, totals: &Totals) -> rusqlite::Result<()> {
    set_note(connection, TOTALS, codec::totals::encode(totals))
}

/// A number among the store's notes.
pub(crate) fn meta(connection: &Connection, key: &str) -> Result<i64, StoreError> {
    let bytes = meta_bytes(connection, key)?.try_into().map_err(|_| damaged(DAMAGED_NOTES))?;
    Ok(i64::from_le_bytes(bytes))
}

pub(crate) fn set_meta(connection: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    set_note(connection, key, value.to_le_bytes().to_vec())
}

const DAMAGED_NOTES: &str = "the store's notes";

fn meta_bytes(connection: &Connection, key: &str) -> Result<Vec<u8>, StoreError> {
    find_note(connection, key)?.ok_or_else(|| damaged(&format!("\"{key}\" is missing from the store's notes")))
}

fn find_note(connection: &Connection, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let mut select = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1").map_err(sql)?;
    let sealed: Option<Vec<u8>> = select.query_row([key], |row| row.get(0)).optional().map_err(sql)?;
    let unsealed = sealed.map(|sealed| verify_checksum(place_of(key), &sealed).map(<[u8]>::to_vec));
    unsealed.transpose().map_err(|_| damaged(DAMAGED_NOTES))
}

fn set_note(connection: &Connection, key: &str, value: Vec<u8>) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)")?;
    insert.execute(params![key, append_checksum(place_of(key), value)]).map(|_| ())
}

/// What the checksum of a note covers beside its value.
fn place_of(key: &str) -> u64 {
    u64::from(checksum(0, key.as_bytes()))
}
