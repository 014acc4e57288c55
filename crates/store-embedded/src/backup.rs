//! Backup and restore of a data directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use longshore_core::id::{LeaseToken, LeaseVersion, Seq};
use longshore_core::lease::LeaseEnd;
use longshore_core::state::State;
use longshore_core::time::Timestamp;
use longshore_store::{FormatError, StoreError};
use rusqlite::{Connection, params};

use crate::data_dir::{self, DataDir, PARTIAL, create_directory, open_private, store_dir};
use crate::error::{corrupt, sql};
use crate::key_order::KeyOrderCheck;
use crate::meta;
use crate::moved_marker;
use crate::recovery::{check_wal_complete, check_watermark};
use crate::schema;
use crate::sqlite::{DATABASE, Location, Role, map_open_error};
use crate::wal;
use crate::watermark;
use longshore_codec as codec;
use longshore_store::OsRng;

/// Writes a snapshot of the store into a new directory. The writer continues meanwhile.
pub(crate) fn backup(location: &Location, directory: &Path) -> Result<(), StoreError> {
    // SQLite refuses `VACUUM INTO` on a read-only connection.
    let connection = location.open(Role::Checkpointer).map_err(map_open_error)?;
    let directory = &create_directory(directory)?;
    let target = directory.join(DATABASE);
    if target.exists() {
        return Err(StoreError::AlreadyExists { path: target });
    }
    with_partial_copy(directory, |partial| {
        let name = partial.to_str().ok_or_else(|| sql(rusqlite::Error::InvalidPath(partial.to_owned())))?;
        connection.execute("VACUUM INTO ?1", [name]).map_err(sql)?;
        edit_copy(partial, |copy| meta::mark_as_backup(copy).map_err(sql))
    })
}

/// Runs `copy` on a partial file and renames it on success. A failed copy is deleted, because it
/// may have filled the disk.
fn with_partial_copy(directory: &Path, copy: impl FnOnce(&Path) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let partial = begin_copy(directory).map_err(StoreError::not_applied)?;
    let done = copy(&partial).and_then(|()| finish_copy(directory).map_err(StoreError::not_applied));
    if done.is_err() {
        // A server refuses a remaining partial file, and the next copy deletes it.
        drop(remove_copy(directory));
    }
    done
}

/// Creates an empty partial file. Deletes the files of an earlier copy first: SQLite would apply
/// an old journal to the new copy.
fn begin_copy(directory: &Path) -> io::Result<PathBuf> {
    remove_copy(directory)?;
    let partial = directory.join(PARTIAL);
    open_private(&partial)?;
    Ok(partial)
}

fn remove_copy(directory: &Path) -> io::Result<()> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        match fs::remove_file(directory.join(format!("{PARTIAL}{suffix}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Edits a copy. Afterwards all of it is in one file.
fn edit_copy(partial: &Path, edit: impl FnOnce(&Connection) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let connection = Location::File(partial.to_owned()).open(Role::Writer).map_err(map_open_error)?;
    edit(&connection)?;
    connection.pragma_update(None, "journal_mode", "DELETE").map_err(sql)
}

/// Syncs a complete copy and renames it.
fn finish_copy(directory: &Path) -> io::Result<()> {
    let partial = directory.join(PARTIAL);
    File::open(&partial)?.sync_all()?;
    fs::rename(&partial, directory.join(DATABASE))?;
    File::open(directory)?.sync_all()
}

/// State of a directory during its backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// No other process had it open.
    Closed,
    /// Another process used it. The copy has the commits from before the start of the backup.
    InUse,
}

/// Backs up a directory, also while a server uses it.
///
/// SQLite readers do not block the writer, and they see complete commits only. Of these, claims and
/// heartbeats may not be synced yet. A store that a server would refuse is not copied, because its
/// copy would look complete.
pub fn backup_directory(directory: &Path, target: &Path) -> Result<SourceState, StoreError> {
    let (source, data_dir) = match DataDir::open_existing(directory) {
        Ok(data_dir) => (SourceState::Closed, data_dir),
        Err(error) if in_use(&error) => (SourceState::InUse, DataDir::open_shared(directory)?),
        Err(error) => return Err(error),
    };
    let connection = data_dir.database.open(Role::Reader).map_err(map_open_error)?;
    schema::check(&connection)?;
    check_wal_complete(&data_dir.database, &connection)?;
    backup(&data_dir.database, target)?;
    Ok(source)
}

/// Returns whether another process has the directory open.
pub fn in_use(error: &StoreError) -> bool {
    matches!(error, StoreError::InUse { .. })
}

/// Creates a store from a backup.
///
/// All leases of the backup are void. New lease versions are above all earlier ones, including
/// those of other stores that were restored from the same backup.
pub fn restore(backup: &Path, directory: &Path, now: Timestamp) -> Result<(), StoreError> {
    let backup = &store_dir(backup)?;
    if fs::canonicalize(directory).is_ok_and(|directory| directory == *backup) {
        return Err(StoreError::AlreadyExists { path: backup.join(DATABASE) });
    }
    moved_marker::refuse(backup)?;
    let _lock = require_clean_backup(backup)?;
    let data_dir = DataDir::create_empty(directory)?;
    let Location::File(database) = &data_dir.database else {
        return Err(StoreError::Format(FormatError::NoStore));
    };
    let directory = database.parent().unwrap_or(directory);
    if database.exists() {
        return Err(StoreError::AlreadyExists { path: database.clone() });
    }
    watermark::remove(&data_dir.database).map_err(StoreError::not_applied)?;
    with_partial_copy(directory, |partial| {
        let copy = || io::copy(&mut File::open(backup.join(DATABASE))?, &mut open_private(partial)?);
        let _: u64 = copy().map_err(StoreError::not_applied)?;
        edit_copy(partial, |copy| {
            schema::check(copy)?;
            check_watermark(&Location::File(backup.join(DATABASE)), copy)?;
            start_new_epoch(copy, now)
        })
    })
}

/// Refuses a store that is in use or was not stopped: its database without the WAL is incomplete.
///
/// Returns the lock of a stopped store. A backup has none.
fn require_clean_backup(backup: &Path) -> Result<Option<File>, StoreError> {
    let database = backup.join(DATABASE);
    for wal in [wal::wal_path(&database), wal::journal_path(&database)] {
        if fs::metadata(&wal).is_ok_and(|wal| wal.len() > 0) {
            return Err(StoreError::not_applied(NotABackup(backup.to_owned())));
        }
    }
    match data_dir::lock_if_exists(backup) {
        Err(error) if in_use(&error) => Err(StoreError::not_applied(NotABackup(backup.to_owned()))),
        other => other,
    }
}

/// The source of a restore is a data directory.
#[derive(Debug)]
struct NotABackup(PathBuf);

impl std::fmt::Display for NotABackup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let from = self.0.display();
        write!(f, "{from} is a store, not a backup (run `longshore backup {from} COPY`, then restore COPY)")
    }
}

impl std::error::Error for NotABackup {}

fn start_new_epoch(connection: &Connection, now: Timestamp) -> Result<(), StoreError> {
    let dictionary = crate::dictionary::load(connection)?;
    let transaction = connection.unchecked_transaction().map_err(sql)?;
    let epoch = meta::integer(&transaction, meta::EPOCH)?;
    let next = LeaseVersion::next_epoch(epoch.max(1).unsigned_abs(), now);
    meta::set_integer(&transaction, meta::EPOCH, next.cast_signed()).map_err(sql)?;
    meta::clear_backup_flag(&transaction).map_err(sql)?;
    if let Some(floor) = meta::clock_floor(&transaction)? {
        // No worker holds these leases: they are not extended by the time since the backup.
        meta::set_clock_floor(&transaction, floor.max(now)).map_err(sql)?;
    }
    let mut rng = OsRng::default();
    let mut select = transaction.prepare("SELECT seq, record FROM live_jobs ORDER BY seq").map_err(sql)?;
    let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("live_jobs"));
    while let Some(row) = rows.next().map_err(sql)? {
        let number: i64 = row.get(0).map_err(sql)?;
        let seq = Seq(number.cast_unsigned());
        order.next(seq)?;
        let corrupt_record = || corrupt(&format!("the record of job {seq}"));
        let bytes = row.get_ref(1).map_err(sql)?.as_blob().map_err(|_| corrupt_record())?;
        let mut job = codec::job::decode(seq, bytes, &dictionary).map_err(|_| corrupt_record())?;
        if let State::Running(lease) = &mut job.state {
            lease.token = LeaseToken::random(&mut rng);
            if lease.next_expiry() == LeaseEnd::Never {
                // No worker has the new token, so only an expiry can end this run.
                lease.expires_at = Some(job.updated_at);
            }
            let record = codec::job::encode(&job, &dictionary, Vec::new()).ok_or_else(corrupt_record)?;
            let mut update =
                transaction.prepare_cached("UPDATE live_jobs SET record = ?2 WHERE seq = ?1").map_err(sql)?;
            update.execute(params![number, record]).map_err(sql)?;
        }
    }
    drop(rows);
    drop(select);
    transaction.commit().map_err(sql)
}
