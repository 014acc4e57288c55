//! Copies of a store that are whole, and stores made from copies.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use longshore_core::id::{LeaseToken, LeaseVersion, Seq};
use longshore_core::lease::LeaseEnd;
use longshore_core::state::State;
use longshore_core::time::Timestamp;
use longshore_store::StoreError;
use rusqlite::{Connection, params};

use crate::data_dir::{self, DataDir, UNFINISHED, make_directory, open_private, store_dir};
use crate::error::{damaged, sql};
use crate::key_order::KeyOrderCheck;
use crate::moved;
use crate::schema::{self, DATABASE, Location, Role, map_open_error};
use crate::wal;
use crate::watermark;
use longshore_codec as codec;
use longshore_store::OsRng;

/// Writes the store, as it is at this moment, into a new directory. Work goes on meanwhile.
pub(crate) fn backup(location: &Location, directory: &Path) -> Result<(), StoreError> {
    // A connection that only looks may not even write elsewhere.
    let connection = location.open(Role::Checkpointer).map_err(map_open_error)?;
    let directory = &make_directory(directory)?;
    let target = directory.join(DATABASE);
    if target.exists() {
        return Err(StoreError::not_applied(Exists(target)));
    }
    with_partial_copy(directory, |unfinished| {
        let name = unfinished.to_str().ok_or_else(|| sql(rusqlite::Error::InvalidPath(unfinished.to_owned())))?;
        connection.execute("VACUUM INTO ?1", [name]).map_err(sql)?;
        change_copy(unfinished, |copy| schema::mark_as_backup(copy).map_err(sql))
    })
}

/// Makes a copy under another name first. One that fails leaves nothing: the disk may be full because of it.
fn with_partial_copy(directory: &Path, copy: impl FnOnce(&Path) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let unfinished = begin_copy(directory).map_err(StoreError::not_applied)?;
    let done = copy(&unfinished).and_then(|()| finish_copy(directory).map_err(StoreError::not_applied));
    if done.is_err() {
        // What is left is refused by whoever would serve it, and goes with the next copy.
        drop(remove_copy(directory));
    }
    done
}

/// An empty file for a copy, for nobody else's eyes. What an earlier one has left goes first: SQLite would take the journal of another copy for that of this one.
fn begin_copy(directory: &Path) -> io::Result<PathBuf> {
    remove_copy(directory)?;
    let unfinished = directory.join(UNFINISHED);
    open_private(&unfinished)?;
    Ok(unfinished)
}

fn remove_copy(directory: &Path) -> io::Result<()> {
    for left in ["", "-journal", "-wal", "-shm"] {
        match fs::remove_file(directory.join(format!("{UNFINISHED}{left}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// All of it is in the one file afterwards.
fn change_copy(
    unfinished: &Path,
    change: impl FnOnce(&Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let connection = Location::File(unfinished.to_owned()).open(Role::Writer).map_err(map_open_error)?;
    change(&connection)?;
    connection.pragma_update(None, "journal_mode", "DELETE").map_err(sql)
}

/// Only a copy that is on disk as a whole gets its name.
fn finish_copy(directory: &Path) -> io::Result<()> {
    let unfinished = directory.join(UNFINISHED);
    File::open(&unfinished)?.sync_all()?;
    fs::rename(&unfinished, directory.join(DATABASE))?;
    File::open(directory)?.sync_all()
}

/// How a directory was found when it was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Nobody had it open, and nobody could open it meanwhile.
    Closed,
    /// Another process works in it, and went on: the copy is what had been committed when it was begun.
    InUse,
}

/// Copies the store of a directory, whether or not a server has it open. SQLite lets others read beside the writer, and a commit is seen
/// by them only once it is synced. What a server would refuse to open is not copied either: the copy would look whole.
pub fn backup_directory(directory: &Path, target: &Path) -> Result<SourceState, StoreError> {
    let (copied, home) = match DataDir::open_existing(directory) {
        Ok(home) => (SourceState::Closed, home),
        Err(error) if in_use(&error) => (SourceState::InUse, DataDir::open_shared(directory)?),
        Err(error) => return Err(error),
    };
    let connection = home.database.open(Role::Reader).map_err(map_open_error)?;
    schema::check(&connection)?;
    wal::check_wal_complete(&home.database, &connection)?;
    backup(&home.database, target)?;
    Ok(copied)
}

/// Whether a directory could not be opened because another process works in it.
pub fn in_use(error: &StoreError) -> bool {
    matches!(error, StoreError::NotApplied(cause) if cause.downcast_ref::<data_dir::Locked>().is_some())
}

/// Makes a store from a backup. Leases of before are void, and lease versions go on above all that were ever given, also by stores that were made from
/// the same backup before now.
pub fn restore(backup: &Path, directory: &Path, now: Timestamp) -> Result<(), StoreError> {
    let backup = &store_dir(backup)?;
    if fs::canonicalize(directory).is_ok_and(|directory| directory == *backup) {
        return Err(StoreError::not_applied(Exists(backup.join(DATABASE))));
    }
    moved::refuse(backup)?;
    let _alone = require_clean_backup(backup)?;
    let home = DataDir::create_empty(directory)?;
    let Location::File(database) = &home.database else { return Err(damaged("the place of the store")) };
    let directory = database.parent().unwrap_or(directory);
    if database.exists() {
        return Err(StoreError::not_applied(Exists(database.clone())));
    }
    watermark::remove(&home.database).map_err(StoreError::not_applied)?;
    with_partial_copy(directory, |unfinished| {
        let copy = || io::copy(&mut File::open(backup.join(DATABASE))?, &mut open_private(unfinished)?);
        let _: u64 = copy().map_err(StoreError::not_applied)?;
        change_copy(unfinished, |copy| {
            schema::check(copy)?;
            wal::check_watermark(&Location::File(backup.join(DATABASE)), copy)?;
            start_new_epoch(copy, now)
        })
    })
}

/// Refuses a store that is at work, or that was not stopped: the database without its log is not what was acknowledged. The lock of one that was stopped is
/// held as long as the answer is; a backup has none.
fn require_clean_backup(backup: &Path) -> Result<Option<File>, StoreError> {
    let database = backup.join(DATABASE);
    for log in [wal::path_of(&database), wal::journal_of(&database)] {
        if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
            return Err(StoreError::not_applied(NotABackup(backup.to_owned())));
        }
    }
    match data_dir::lock_if_there(backup) {
        Err(error) if in_use(&error) => Err(StoreError::not_applied(NotABackup(backup.to_owned()))),
        other => other,
    }
}

/// A data directory was named instead of a backup.
#[derive(Debug)]
struct NotABackup(PathBuf);

impl std::fmt::Display for NotABackup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let from = self.0.display();
        write!(
            f,
            "{from} is a store, not a backup: copy it with `longshore backup {from} COPY` first, then restore COPY"
        )
    }
}

impl std::error::Error for NotABackup {}

fn start_new_epoch(connection: &Connection, now: Timestamp) -> Result<(), StoreError> {
    let names = crate::dictionary::load(connection)?;
    let transaction = connection.unchecked_transaction().map_err(sql)?;
    let epoch: i64 = schema::meta(&transaction, "epoch")?;
    let next = LeaseVersion::next_epoch(epoch.max(1).unsigned_abs(), now);
    schema::set_meta(&transaction, "epoch", next.cast_signed()).map_err(sql)?;
    schema::clear_backup_flag(&transaction).map_err(sql)?;
    if let Some(seen) = schema::seen(&transaction)? {
        // No worker holds these leases any more: the time since the copy was made counts.
        schema::set_seen(&transaction, seen.max(now)).map_err(sql)?;
    }
    let mut rng = OsRng::default();
    let mut select = transaction.prepare("SELECT seq, record FROM live ORDER BY seq").map_err(sql)?;
    let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("live"));
    while let Some(row) = rows.next().map_err(sql)? {
        let number: i64 = row.get(0).map_err(sql)?;
        let seq = Seq(number.cast_unsigned());
        order.next(seq)?;
        let broken = || damaged(&format!("the record of job {seq}"));
        let bytes = row.get_ref(1).map_err(sql)?.as_blob().map_err(|_| broken())?;
        let mut job = codec::job::decode(seq, bytes, &names).map_err(|_| broken())?;
        if let State::Running(lease) = &mut job.state {
            lease.token = LeaseToken::random(&mut rng);
            if lease.next_expiry() == LeaseEnd::Never {
                // Nobody has the token that could end this run.
                lease.expires_at = Some(job.updated_at);
            }
            let record = codec::job::encode(&job, &names, Vec::new()).ok_or_else(broken)?;
            let mut update = transaction.prepare_cached("UPDATE live SET record = ?2 WHERE seq = ?1").map_err(sql)?;
            update.execute(params![number, record]).map_err(sql)?;
        }
    }
    drop(rows);
    drop(select);
    transaction.commit().map_err(sql)
}

/// There is something already.
#[derive(Debug)]
struct Exists(PathBuf);

impl std::fmt::Display for Exists {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} exists already", self.0.display())
    }
}

impl std::error::Error for Exists {}
