//! Key-value table `meta`: identity, epoch, counters, the commit sequence.
//!
//! Every value ends with a checksum over the key and the value.

use longshore_codec::{self, append_checksum, checksum, verify_checksum};
use longshore_core::ocypod::totals::Totals;
use longshore_core::rng::Rng;
use longshore_core::time::Timestamp;
use longshore_store::OsRng;
use longshore_store::{FormatError, StoreError};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{corrupt, sql};
use crate::schema::ClockMode;

const ID_KEY: &str = "id_key";
const CLOCK_MODE: &str = "time";
/// Epoch of the lease versions. A restore starts a new one.
pub(crate) const EPOCH: &str = "epoch";
/// Lower bound of the next sequence number, written when a job is deleted.
pub(crate) const NEXT_SEQ: &str = "next_seq";
/// Totals of the Ocypod dialect.
const TOTALS: &str = "totals";
const COMMIT_SEQ: &str = "commit_seq";
/// Record of the last commit: its number, the live jobs after it, the synced commits before it.
const LIVE_JOBS: &str = "live_jobs";
/// Only in stores in real time.
const CLOCK_FLOOR: &str = "clock_floor";
/// Latest time of a commit that an unclean stop may have lost. Only in stores in real time.
const LOST_UNTIL: &str = "lost_until";
/// Only in backups.
const BACKUP: &str = "backup";

/// All keys that a store may contain.
pub(crate) const META_KEYS: [&str; 10] =
    [ID_KEY, CLOCK_MODE, EPOCH, NEXT_SEQ, TOTALS, COMMIT_SEQ, LIVE_JOBS, CLOCK_FLOOR, LOST_UNTIL, BACKUP];

/// Length of the checksum behind each value.
const CHECKSUM_BYTES: usize = 4;
const CORRUPT_META: &str = "the meta table";

/// Writes the values of a new store.
pub(crate) fn initialize(connection: &Connection, clock_mode: ClockMode, totals: &Totals) -> rusqlite::Result<()> {
    let mut rng = OsRng::default();
    let rng: &mut dyn Rng = &mut rng;
    set_bytes(connection, ID_KEY, rng.bytes16().to_vec())?;
    set_bytes(connection, CLOCK_MODE, clock_mode.as_str().into())?;
    set_integer(connection, EPOCH, 1)?;
    set_integer(connection, NEXT_SEQ, 1)?;
    set_totals(connection, totals)?;
    set_commit_record(connection, CommitRecord { commit_seq: 0, live_jobs: 0, synced_seq: CommitRecord::NONE_SYNCED })
}

/// Returns the secret of the id cipher. It also identifies the store.
pub(crate) fn id_key(connection: &Connection) -> Result<[u8; 16], StoreError> {
    bytes(connection, ID_KEY)?.try_into().map_err(|_| corrupt(CORRUPT_META))
}

pub(crate) fn clock_mode(connection: &Connection) -> Result<ClockMode, StoreError> {
    let stored = bytes(connection, CLOCK_MODE)?;
    let mode = [ClockMode::Real, ClockMode::Virtual].into_iter().find(|mode| mode.as_str().as_bytes() == stored);
    mode.ok_or_else(|| corrupt(CORRUPT_META))
}

/// Marks a copy as a backup. The store refuses to serve it before a restore.
///
/// Leases that the original grants after the copy must not be valid in a store that continues
/// from the copy.
pub(crate) fn mark_as_backup(connection: &Connection) -> rusqlite::Result<()> {
    set_bytes(connection, BACKUP, Vec::new())
}

pub(crate) fn clear_backup_flag(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM meta WHERE key = ?1", [BACKUP]).map(drop)
}

pub(crate) fn refuse_backup(connection: &Connection) -> Result<(), StoreError> {
    match find_bytes(connection, BACKUP)? {
        Some(_) => Err(StoreError::Format(FormatError::Backup)),
        None => Ok(()),
    }
}

/// Returns the sequence number of the last commit. `recovery.rs` uses it to detect a WAL that lost
/// commits.
///
/// It shares a page with the totals, so a commit pays for one page only.
pub(crate) fn commit_seq(connection: &Connection) -> Result<i64, StoreError> {
    integer(connection, COMMIT_SEQ)
}

/// What each commit records about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitRecord {
    pub commit_seq: i64,
    /// Live jobs after the commit.
    pub live_jobs: u64,
    /// Last commit that was synced when this one was written.
    pub synced_seq: i64,
}

impl CommitRecord {
    /// No commit is known to be synced.
    pub(crate) const NONE_SYNCED: i64 = -1;

    fn decode(value: &[u8]) -> Option<Self> {
        let (words, _) = value.as_chunks::<8>();
        let (commit_seq, live_jobs, synced_seq) = match *words {
            [commit_seq, live_jobs, synced_seq] => (commit_seq, live_jobs, synced_seq),
            // Builds that synced every commit did not record it.
            [commit_seq, live_jobs] => (commit_seq, live_jobs, Self::NONE_SYNCED.to_le_bytes()),
            _ => return None,
        };
        Some(Self {
            commit_seq: i64::from_le_bytes(commit_seq),
            live_jobs: u64::from_le_bytes(live_jobs),
            synced_seq: i64::from_le_bytes(synced_seq),
        })
    }

    /// Finds the records in the bytes of a page, also stale ones in its free space. Returns the one
    /// of the last commit.
    pub(crate) fn find_in_page(page: &[u8]) -> Option<Self> {
        let (key, value_bytes) = (LIVE_JOBS.as_bytes(), 3 * 8 + CHECKSUM_BYTES);
        let starts = page.windows(key.len()).enumerate().filter(|(_, window)| *window == key);
        let records = starts.filter_map(|(start, _)| {
            let stored = page.get(start + key.len()..start + key.len() + value_bytes)?;
            Self::decode(verify_checksum(checksum_seed(LIVE_JOBS), stored).ok()?)
        });
        records.max_by_key(|record| record.commit_seq)
    }
}

pub(crate) fn set_commit_record(connection: &Connection, record: CommitRecord) -> rusqlite::Result<()> {
    let CommitRecord { commit_seq, live_jobs, synced_seq } = record;
    let value = [commit_seq.to_le_bytes(), live_jobs.to_le_bytes(), synced_seq.to_le_bytes()];
    set_bytes(connection, LIVE_JOBS, value.as_flattened().to_vec())?;
    set_integer(connection, COMMIT_SEQ, commit_seq)
}

/// Sets the sequence number of a commit that changes no job.
pub(crate) fn bump_commit_seq(connection: &Connection, commit_seq: i64, synced_seq: i64) -> rusqlite::Result<()> {
    match live_jobs(connection) {
        Ok(Some(live_jobs)) => set_commit_record(connection, CommitRecord { commit_seq, live_jobs, synced_seq }),
        // A corrupt count stays as it is: the next open reports it.
        Ok(None) | Err(_) => set_integer(connection, COMMIT_SEQ, commit_seq),
    }
}

/// Returns the time of the last commit, or `None` in virtual time and before the first commit.
pub(crate) fn clock_floor(connection: &Connection) -> Result<Option<Timestamp>, StoreError> {
    find_time(connection, CLOCK_FLOOR)
}

pub(crate) fn set_clock_floor(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    set_integer(connection, CLOCK_FLOOR, now.as_millis())
}

/// Returns the latest time of a commit that was lost by an unclean stop before the last open.
pub(crate) fn lost_until(connection: &Connection) -> Result<Option<Timestamp>, StoreError> {
    find_time(connection, LOST_UNTIL)
}

pub(crate) fn set_lost_until(connection: &Connection, time: Timestamp) -> rusqlite::Result<()> {
    set_integer(connection, LOST_UNTIL, time.as_millis())
}

fn find_time(connection: &Connection, key: &str) -> Result<Option<Timestamp>, StoreError> {
    let Some(stored) = find_bytes(connection, key)? else { return Ok(None) };
    let stored = stored.try_into().map_err(|_| corrupt(CORRUPT_META))?;
    Ok(Some(Timestamp::from_millis(i64::from_le_bytes(stored))))
}

/// Returns the expected number of rows in `live_jobs`, or `None` if the last commit did not count.
///
/// Pages that are missing from a table leave no other trace in it.
pub(crate) fn live_jobs(connection: &Connection) -> Result<Option<u64>, StoreError> {
    let Some(stored) = find_bytes(connection, LIVE_JOBS)? else { return Ok(None) };
    let record = CommitRecord::decode(&stored).ok_or_else(|| corrupt(CORRUPT_META))?;
    Ok((record.commit_seq == commit_seq(connection)?).then_some(record.live_jobs))
}

/// Refuses a table of live jobs that has lost or gained rows.
pub(crate) fn check_live_jobs(connection: &Connection, found: u64) -> Result<(), StoreError> {
    match live_jobs(connection)? {
        Some(expected) if expected != found => {
            Err(corrupt(&format!("table \"live_jobs\" has {found} rows, expected {expected}")))
        }
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn totals(connection: &Connection) -> Result<Totals, StoreError> {
    longshore_codec::totals::decode(&bytes(connection, TOTALS)?).map_err(|_| corrupt(CORRUPT_META))
}

pub(crate) fn set_totals(connection: &Connection, totals: &Totals) -> rusqlite::Result<()> {
    set_bytes(connection, TOTALS, longshore_codec::totals::encode(totals))
}

pub(crate) fn integer(connection: &Connection, key: &str) -> Result<i64, StoreError> {
    let bytes = bytes(connection, key)?.try_into().map_err(|_| corrupt(CORRUPT_META))?;
    Ok(i64::from_le_bytes(bytes))
}

pub(crate) fn set_integer(connection: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    set_bytes(connection, key, value.to_le_bytes().to_vec())
}

fn bytes(connection: &Connection, key: &str) -> Result<Vec<u8>, StoreError> {
    find_bytes(connection, key)?.ok_or_else(|| corrupt(&format!("meta key \"{key}\" is missing")))
}

fn find_bytes(connection: &Connection, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let mut select = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1").map_err(sql)?;
    let stored: Option<Vec<u8>> = select.query_row([key], |row| row.get(0)).optional().map_err(sql)?;
    let value = stored.map(|stored| verify_checksum(checksum_seed(key), &stored).map(<[u8]>::to_vec));
    value.transpose().map_err(|_| corrupt(CORRUPT_META))
}

fn set_bytes(connection: &Connection, key: &str, value: Vec<u8>) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)")?;
    insert.execute(params![key, append_checksum(checksum_seed(key), value)]).map(|_| ())
}

/// Binds a value to its key: the checksum fails if values are swapped.
fn checksum_seed(key: &str) -> u64 {
    u64::from(checksum(0, key.as_bytes()))
}
