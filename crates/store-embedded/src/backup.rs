//! Copies of a store that are whole, and stores made from copies.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use longshore_core::id::{LeaseToken, Seq};
use longshore_core::state::State;
use longshore_store::StoreError;
use rusqlite::{Connection, params};

use crate::error::{damaged, sql};
use crate::noted;
use crate::schema::{self, DATABASE, Location, Role};
use longshore_records::SystemDice;
use longshore_records::codec;

/// Writes the store, as it is at this moment, into a new directory. Work goes on meanwhile.
pub(crate) fn backup(location: &Location, directory: &Path) -> Result<(), StoreError> {
    // A connection that only looks may not even write elsewhere.
    let connection = location.open(Role::Checkpointer).map_err(sql)?;
    fs::create_dir_all(directory).map_err(StoreError::not_applied)?;
    let target = directory.join(DATABASE);
    if target.exists() {
        return Err(StoreError::not_applied(Exists(target)));
    }
    let unfinished = directory.join(format!("{DATABASE}.unfinished"));
    drop(fs::remove_file(&unfinished));
    connection.execute("VACUUM INTO ?1", [unfinished.to_string_lossy()]).map_err(sql)?;
    // Only a copy that is on disk as a whole gets its name.
    File::open(&unfinished).and_then(|file| file.sync_all()).map_err(StoreError::not_applied)?;
    fs::rename(&unfinished, &target).map_err(StoreError::not_applied)?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(StoreError::not_applied)
}

/// How a directory was found when it was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// Nobody had it open, and nobody could open it meanwhile.
    Closed,
    /// Another process works in it, and went on: the copy is what had been committed when it was begun.
    InUse,
}

/// Copies the store of a directory, whether or not a server has it open. SQLite lets others read beside the writer, and a commit is seen
/// by them only once it is synced.
pub fn backup_directory(directory: &Path, target: &Path) -> Result<Copied, StoreError> {
    let (copied, home) = match schema::Home::existing(directory) {
        Ok(home) => (Copied::Closed, home),
        Err(error) if in_use(&error) => (Copied::InUse, schema::Home::of_another_process(directory)),
        Err(error) => return Err(error),
    };
    schema::check(&home.database.open(Role::Reader).map_err(sql)?)?;
    backup(&home.database, target)?;
    Ok(copied)
}

/// Whether a directory could not be opened because another process works in it.
pub fn in_use(error: &StoreError) -> bool {
    matches!(error, StoreError::NotApplied(cause) if cause.downcast_ref::<schema::Locked>().is_some())
}

/// Makes a store from a backup. Leases of before are void, and lease versions go on above all that were ever given.
pub fn restore(backup: &Path, directory: &Path) -> Result<(), StoreError> {
    let home = schema::Home::to_fill(directory)?;
    let Location::File(database) = &home.database else { return Err(damaged("the place of the store")) };
    if database.exists() {
        return Err(StoreError::not_applied(Exists(database.clone())));
    }
    noted::forget(&home.database).map_err(StoreError::not_applied)?;
    let unfinished = directory.join(format!("{DATABASE}.unfinished"));
    fs::copy(backup.join(DATABASE), &unfinished).map_err(StoreError::not_applied)?;
    {
        let connection = Location::File(unfinished.clone()).open(Role::Writer).map_err(sql)?;
        schema::check(&connection)?;
        start_new_epoch(&connection)?;
        connection.pragma_update(None, "journal_mode", "DELETE").map_err(sql)?;
    }
    File::open(&unfinished).and_then(|file| file.sync_all()).map_err(StoreError::not_applied)?;
    fs::rename(&unfinished, database).map_err(StoreError::not_applied)?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(StoreError::not_applied)
}

fn start_new_epoch(connection: &Connection) -> Result<(), StoreError> {
    let names = crate::names::load(connection)?;
    let transaction = connection.unchecked_transaction().map_err(sql)?;
    let epoch: i64 = schema::meta(&transaction, "epoch")?;
    schema::set_meta(&transaction, "epoch", epoch + 1).map_err(sql)?;
    let mut dice = SystemDice::default();
    let mut select = transaction.prepare("SELECT seq, record FROM live").map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let number: i64 = row.get(0).map_err(sql)?;
        let seq = Seq(number.cast_unsigned());
        let broken = || damaged(&format!("the record of job {seq}"));
        let bytes = row.get_ref(1).map_err(sql)?.as_blob().map_err(|_| broken())?;
        let mut job = codec::job::decode(seq, bytes, &names).map_err(|_| broken())?;
        if let State::Running(lease) = &mut job.state {
            lease.token = LeaseToken::random(&mut dice);
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
