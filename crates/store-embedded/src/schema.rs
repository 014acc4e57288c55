//! The files: one directory, one database in it, one lock.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use longshore_core::totals::Totals;
use longshore_store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::error::{damaged, sql};
use crate::log;
use longshore_records::codec::{self, checksum, seal, unseal};

/// Version of the tables. A newer one is refused, never rewritten.
pub(crate) const SCHEMA: i64 = 1;
const SUPPORTED: &str = "an embedded store of version 1";
/// Marks the database as ours ("Lngs").
const APPLICATION_ID: i32 = 0x4c6e_6773;

pub(crate) const DATABASE: &str = "longshore.db";
const LOCK: &str = "lock";

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
pub enum TimeKind {
    Real,
    Virtual,
}

impl TimeKind {
    fn word(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Virtual => "virtual",
        }
    }
}

/// Where a store keeps its files, and the lock that keeps others out.
#[derive(Debug)]
pub(crate) struct Home {
    pub database: Location,
    /// Held until the store is closed.
    _lock: Option<File>,
}

#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// A name of a shared database in memory, gone with its last connection.
    Memory(String),
    File(PathBuf),
}

impl Home {
    pub(crate) fn memory(name: String) -> Self {
        Self { database: Location::Memory(name), _lock: None }
    }

    /// The directory of a store that is there.
    pub(crate) fn existing(directory: &Path) -> Result<Self, StoreError> {
        if !directory.join(DATABASE).is_file() {
            let found = format!("{}: there is no store in it", directory.display());
            return Err(StoreError::Format { found, supported: SUPPORTED });
        }
        Self::locked(directory)
    }

    /// The directory of a store that another process has the lock of: for looking only.
    pub(crate) fn of_another_process(directory: &Path) -> Self {
        Self { database: Location::File(directory.join(DATABASE)), _lock: None }
    }

    /// Makes the directory if need be, and takes its lock.
    pub(crate) fn directory(directory: &Path) -> Result<Self, StoreError> {
        let home = Self::to_fill(directory)?;
        if let Location::File(database) = &home.database {
            // SQLite gives its other files the rights of this one.
            drop(private(database).map_err(StoreError::not_applied)?);
        }
        Ok(home)
    }

    /// The same, without any file of a store.
    pub(crate) fn to_fill(directory: &Path) -> Result<Self, StoreError> {
        make_directory(directory).map_err(StoreError::not_applied)?;
        Self::locked(directory)
    }

    fn locked(directory: &Path) -> Result<Self, StoreError> {
        let lock = lock(directory)?;
        let database = directory.join(DATABASE);
        let log = log::path_of(&database);
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        if (!database.exists() && log.exists()) || (bytes(&database) == 0 && bytes(&log) > 0) {
            // Somebody has lost the database; a new one would look as if there had never been a job, and SQLite would remove the log.
            let found = format!("{}: a log without its database", directory.display());
            return Err(StoreError::Format { found, supported: SUPPORTED });
        }
        log::check(&database)?;
        Ok(Self { database: Location::File(database), _lock: Some(lock) })
    }
}

/// Opens a file for writing, made for its owner alone if it is not there.
pub(crate) fn private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

pub(crate) fn make_directory(directory: &Path) -> std::io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)?;
    // The entry in the parent must outlive a power cut, too.
    match directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    take(private(&directory.join(LOCK)).map_err(StoreError::not_applied)?, directory)
}

/// The lock of a directory that is only read: none is made.
pub(crate) fn lock_if_there(directory: &Path) -> Result<Option<File>, StoreError> {
    match File::open(directory.join(LOCK)) {
        Ok(file) => take(file, directory).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::not_applied(error)),
    }
}

fn take(file: File, directory: &Path) -> Result<File, StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::not_applied(Locked(directory.to_owned()))),
        Err(TryLockError::Error(error)) => Err(StoreError::not_applied(error)),
    }
}

/// Another process works in the directory.
#[derive(Debug)]
pub(crate) struct Locked(PathBuf);

impl std::fmt::Display for Locked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is in use by another process", self.0.display())
    }
}

impl std::error::Error for Locked {}

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

/// Makes the tables of a new store, or makes sure that an old one is ours.
pub(crate) fn prepare(connection: &Connection, time: TimeKind) -> Result<(), StoreError> {
    let fresh =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0)).map_err(sql)? == 0;
    if fresh {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(sql)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql)?;
        connection.pragma_update(None, "user_version", SCHEMA).map_err(sql)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(sql)?;
        let transaction = connection.unchecked_transaction().map_err(sql)?;
        transaction.execute_batch(TABLES).map_err(sql)?;
        let mut dice = longshore_records::SystemDice::default();
        let dice: &mut dyn longshore_core::dice::Dice = &mut dice;
        set_note(&transaction, ID_KEY, dice.bytes16().to_vec()).map_err(sql)?;
        set_note(&transaction, TIME, time.word().into()).map_err(sql)?;
        set_meta(&transaction, "epoch", 1_i64).map_err(sql)?;
        set_meta(&transaction, "next_number", 1_i64).map_err(sql)?;
        set_totals(&transaction, &Totals::default()).map_err(sql)?;
        set_mark(&transaction, 0).map_err(sql)?;
        return transaction.commit().map_err(sql);
    }
    check(connection)?;
    let kept = note(connection, TIME)?;
    if kept != time.word().as_bytes() {
        let found = format!("a store that was made in {} time", String::from_utf8_lossy(&kept));
        return Err(StoreError::Format { found, supported: "one of the same kind of time" });
    }
    connection.pragma_update(None, "journal_mode", "WAL").map_err(sql)
}

/// Makes sure that a database is one of ours, of a version this program knows.
pub(crate) fn check(connection: &Connection) -> Result<(), StoreError> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(sql)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql)?;
    if application != APPLICATION_ID {
        return Err(StoreError::Format { found: "a database of another program".to_owned(), supported: SUPPORTED });
    }
    if version != SCHEMA {
        return Err(StoreError::Format { found: format!("a store of version {version}"), supported: SUPPORTED });
    }
    Ok(())
}

/// How time passes in a store that is there.
pub(crate) fn time(connection: &Connection) -> Result<TimeKind, StoreError> {
    let kept = note(connection, TIME)?;
    let kind = [TimeKind::Real, TimeKind::Virtual].into_iter().find(|kind| kind.word().as_bytes() == kept);
    kind.ok_or_else(|| damaged(DAMAGED_NOTES))
}

const ID_KEY: &str = "id_key";
const TIME: &str = "time";
const MARK: &str = "mark";

/// The secret that leads from ids to records. Damage to it would make every id unknown.
pub(crate) fn id_key(connection: &Connection) -> Result<[u8; 16], StoreError> {
    note(connection, ID_KEY)?.try_into().map_err(|_| damaged(DAMAGED_NOTES))
}

/// A number that grows with every commit, so that a log which has lost some can be told by it: see [`crate::log`]. The totals lie on the same page, so it costs none of its own.
pub(crate) fn mark(connection: &Connection) -> Result<i64, StoreError> {
    meta(connection, MARK)
}

pub(crate) fn set_mark(connection: &Connection, mark: i64) -> rusqlite::Result<()> {
    set_meta(connection, MARK, mark)
}

/// Under which the totals of the Ocypod dialect are kept.
const TOTALS: &str = "totals";

pub(crate) fn totals(connection: &Connection) -> Result<Totals, StoreError> {
    codec::totals::decode(&note(connection, TOTALS)?).map_err(|_| damaged(DAMAGED_NOTES))
}

pub(crate) fn set_totals(connection: &Connection, totals: &Totals) -> rusqlite::Result<()> {
    set_note(connection, TOTALS, codec::totals::encode(totals))
}

/// A number among the store's notes.
pub(crate) fn meta(connection: &Connection, key: &str) -> Result<i64, StoreError> {
    let bytes = note(connection, key)?.try_into().map_err(|_| damaged(DAMAGED_NOTES))?;
    Ok(i64::from_le_bytes(bytes))
}

pub(crate) fn set_meta(connection: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    set_note(connection, key, value.to_le_bytes().to_vec())
}

const DAMAGED_NOTES: &str = "the store's notes";

fn note(connection: &Connection, key: &str) -> Result<Vec<u8>, StoreError> {
    let mut select = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1").map_err(sql)?;
    let sealed: Option<Vec<u8>> = select.query_row([key], |row| row.get(0)).optional().map_err(sql)?;
    let sealed = sealed.ok_or_else(|| damaged(&format!("\"{key}\" is missing from the store's notes")))?;
    unseal(place_of(key), &sealed).map(<[u8]>::to_vec).map_err(|_| damaged(DAMAGED_NOTES))
}

fn set_note(connection: &Connection, key: &str, value: Vec<u8>) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)")?;
    insert.execute(params![key, seal(place_of(key), value)]).map(|_| ())
}

/// What the checksum of a note covers beside its value.
fn place_of(key: &str) -> u64 {
    u64::from(checksum(0, key.as_bytes()))
}
