//! Recovery at open: checks of the WAL against database and watermark, checkpoint, scan of the
//! live jobs.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Builder;

use longshore_codec as codec;
use longshore_codec::Dictionary;
use longshore_codec::job::RecordHeader;
use longshore_core::id::{LeaseVersion, QueueName, Seq};
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_engine::{Engine, Queue};
use longshore_store::StoreError;
use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::clock_floor::ClockFloor;
use crate::error::{DiskErrorKind, classify, corrupt, sql};
use crate::key_order::KeyOrderCheck;
use crate::live_index::LiveIndex;
use crate::meta;
use crate::records::workflows;
use crate::sqlite::{Location, open_immutable};
use crate::sync_policy::UNSYNCED_MAX;
use crate::system;
use crate::wal;
use crate::wal_checkpoint::{NewEpoch, count_wal_frames, truncate_wal};
use crate::watermark::{self, WatermarkFile, WatermarkRead};

/// Records that the scan hands over at once.
const BLOCK_JOBS: usize = 256;
/// Blocks that may wait for the indexing thread.
const BLOCKS_MAX: usize = 64;

/// Refuses a WAL that ends before a page that was checkpointed from it, or that belongs to another
/// store. The database would show a mixture of two commits.
///
/// Another process may write meanwhile. It commits before it checkpoints and before it advances
/// the watermark, so both are read before the commit sequence.
pub(crate) fn check_wal_complete(location: &Location, connection: &Connection) -> Result<(), StoreError> {
    let Location::File(path) = location else { return Ok(()) };
    // `None` before the first checkpoint.
    let checkpointed = read_without_wal(path);
    check_watermark(location, connection)?;
    let (Some(checkpointed), visible) = (checkpointed, StoreIdentity::read(connection)?) else { return Ok(()) };
    let wal = wal::wal_path(path);
    if checkpointed.id_key != visible.id_key {
        return Err(StoreError::corrupt(format!("{} belongs to another store", wal.display())));
    }
    if checkpointed.commit_seq > visible.commit_seq {
        return Err(StoreError::corrupt(format!(
            "WAL {} ends at commit {}, but the database has pages of commit {}: data is missing",
            wal.display(),
            visible.commit_seq,
            checkpointed.commit_seq
        )));
    }
    Ok(())
}

/// Refuses a database that, with its WAL, ends below the watermark beside it.
pub(crate) fn check_watermark(location: &Location, connection: &Connection) -> Result<(), StoreError> {
    let Location::File(path) = location else { return Ok(()) };
    let watermark = watermark::read_watermark(location, meta::id_key(connection)?);
    let commit_seq = meta::commit_seq(connection)?;
    match watermark {
        WatermarkRead::CommitSeq(recorded) if recorded > commit_seq => Err(StoreError::corrupt(format!(
            "WAL {} ends at commit {commit_seq}, but {} recorded commit {recorded}: data is missing",
            wal::wal_path(path).display(),
            watermark::FILE
        ))),
        WatermarkRead::Foreign => Err(StoreError::corrupt(format!(
            "{} beside {} belongs to another store, or is corrupt",
            watermark::FILE,
            path.display()
        ))),
        WatermarkRead::CommitSeq(_) | WatermarkRead::Empty => Ok(()),
    }
}

/// Identity of a store and its last commit.
pub(crate) struct StoreIdentity {
    id_key: [u8; 16],
    pub commit_seq: i64,
}

impl StoreIdentity {
    fn read(connection: &Connection) -> Result<Self, StoreError> {
        Ok(Self { id_key: meta::id_key(connection)?, commit_seq: meta::commit_seq(connection)? })
    }
}

/// Reads the identity from the database file alone.
pub(crate) fn read_without_wal(path: &Path) -> Option<StoreIdentity> {
    let connection = open_immutable(path).ok()?;
    // During a checkpoint the file may be shorter than its header says. With this setting SQLite
    // reads it nevertheless.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true).ok()?;
    StoreIdentity::read(&connection).ok()
}

/// How the last process that used a store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastStop {
    Clean,
    /// The process or the machine died. Commits that were not synced may be lost.
    Unclean,
}

impl LastStop {
    /// Returns how a store was stopped that is opened now.
    ///
    /// A clean stop leaves an empty WAL. Every start commits to it, and the first commit to a WAL
    /// that starts again is always synced. So frames in the WAL mean an unclean stop, and without
    /// frames no commit is lost.
    pub(crate) fn find(connection: &Connection, is_new: bool) -> Result<Self, StoreError> {
        let is_unclean = !is_new && count_wal_frames(connection).map_err(sql)? > 0;
        Ok(if is_unclean { Self::Unclean } else { Self::Clean })
    }

    /// Returns the latest time of a commit, lost or not, if the last known one is `floor`.
    pub(crate) fn last_instant(self, floor: Timestamp) -> Timestamp {
        match self {
            Self::Clean => floor,
            Self::Unclean => floor + UNSYNCED_MAX,
        }
    }
}

/// Result of the checkpoint at open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenCheckpoint {
    pub wal_frames: i64,
    /// Epoch of the lease versions.
    pub epoch: u64,
    /// The epoch is not stored: the disk is full.
    pub is_epoch_unsaved: bool,
}

/// Checkpoints the WAL before the store is used. After an unclean stop it starts a new epoch of the
/// lease versions.
///
/// The commit that stores the epoch precedes the checkpoint that empties the WAL: a crash in
/// between repeats both.
///
/// After a failed sync the page cache may show pages that never reach the disk, because the kernel
/// considers them written. The checkpoint writes them again, to another file, and syncs it.
pub(crate) fn checkpoint_on_open(
    location: &Location,
    connection: &Connection,
    watermark: &Mutex<WatermarkFile>,
    stop: LastStop,
    now: Timestamp,
    floor: Option<ClockFloor>,
) -> Result<OpenCheckpoint, StoreError> {
    let stored_epoch = meta::integer(connection, meta::EPOCH)?.max(1).unsigned_abs();
    let new_epoch = match stop {
        LastStop::Clean => None,
        LastStop::Unclean => Some(NewEpoch {
            epoch: LeaseVersion::next_epoch(stored_epoch, now),
            lost_until: floor.map(|floor| floor.ended_by),
        }),
    };
    let epoch = new_epoch.map_or(stored_epoch, |new| new.epoch);
    match truncate_wal(connection, meta::commit_seq(connection)?, new_epoch, watermark) {
        Ok(wal_frames) => Ok(OpenCheckpoint { wal_frames, epoch, is_epoch_unsaved: false }),
        // The frames stay in the WAL until the disk has space.
        Err(error) if classify(location, &error) == DiskErrorKind::Full => {
            Ok(OpenCheckpoint { wal_frames: 0, epoch, is_epoch_unsaved: new_epoch.is_some() })
        }
        Err(error) => Err(sql(error)),
    }
}

pub(crate) fn read_queues(connection: &Connection) -> Result<Vec<Queue>, StoreError> {
    let mut queues = Vec::new();
    let mut select = connection.prepare("SELECT name, record FROM queue ORDER BY name").map_err(sql)?;
    let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("queue"));
    while let Some(row) = rows.next().map_err(sql)? {
        let name: String = row.get(0).map_err(sql)?;
        order.next(name.clone())?;
        let record: Vec<u8> = row.get(1).map_err(sql)?;
        let name = QueueName::new(&name).map_err(|_| corrupt("the name of a queue"))?;
        queues.push(codec::policy::decode_queue(name, &record).map_err(|_| corrupt("the record of a queue"))?);
    }
    Ok(queues)
}

/// Rebuilds the engine and the index of live jobs from the tables.
pub(crate) fn recover(
    connection: &Connection,
    options: longshore_engine::EngineOptions,
    dictionary: &Dictionary,
    live: &mut LiveIndex,
) -> Result<Engine, StoreError> {
    let queues = read_queues(connection)?;
    let finished = read_finished_counts(connection)?;
    let next_seq = next_seq(connection)?;
    let mut engine = Engine::rebuild(options, queues, [], finished, next_seq.cast_unsigned());
    engine.set_subscriptions(system::subscriptions(connection)?);
    workflows::with_active_operation(connection)?.into_iter().for_each(|workflow| engine.resume_operation(workflow));
    // This thread reads the records and verifies their checksums, a second one indexes them.
    let (block_tx, blocks) = sync_channel(BLOCKS_MAX);
    // Used blocks return to the reader: an allocation for each would cost more than the copy.
    let (spare_tx, spare_blocks) = channel();
    std::thread::scope(|scope| {
        let index = || index_records(blocks, &spare_tx, dictionary, &mut engine, live);
        let name = "longshore-recovery".to_owned();
        let indexing = Builder::new().name(name).spawn_scoped(scope, index).map_err(StoreError::not_applied)?;
        let read = read_records(connection, &block_tx, &spare_blocks);
        drop(block_tx);
        let indexed = indexing.join().unwrap_or_else(|_| Err(corrupt("a record: the recovery thread panicked")));
        read.and(indexed)
    })?;
    meta::check_live_jobs(connection, live.jobs())?;
    Ok(engine)
}

fn read_finished_counts(connection: &Connection) -> Result<Vec<(QueueName, StateKind, u64)>, StoreError> {
    let mut finished = Vec::new();
    let counts = "SELECT queue, state, jobs FROM finished_counts WHERE jobs > 0 ORDER BY queue, state";
    let mut select = connection.prepare(counts).map_err(sql)?;
    let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("finished_counts"));
    while let Some(row) = rows.next().map_err(sql)? {
        let (queue, state, jobs): (String, u8, i64) =
            (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?, row.get(2).map_err(sql)?);
        order.next((queue.clone(), state))?;
        let queue = QueueName::new(&queue).map_err(|_| corrupt("the name of a queue"))?;
        let state = StateKind::ALL.get(usize::from(state)).ok_or_else(|| corrupt("the counts of finished jobs"))?;
        finished.push((queue, *state, jobs.max(0).unsigned_abs()));
    }
    Ok(finished)
}

/// Returns a sequence number above all that were used.
///
/// The meta key is written only when a job is deleted; rows that still exist bound it from below.
fn next_seq(connection: &Connection) -> Result<i64, StoreError> {
    let stored = meta::integer(connection, meta::NEXT_SEQ)?;
    let last_finished: Option<i64> =
        connection.query_row("SELECT max(seq) FROM finished_jobs", [], |row| row.get(0)).map_err(sql)?;
    let last_workflow: Option<i64> =
        connection.query_row("SELECT max(number) FROM workflow", [], |row| row.get(0)).map_err(sql)?;
    let last = last_finished.max(last_workflow).unwrap_or(0);
    Ok(stored.max(last.saturating_add(1)))
}

/// Consecutive records of the scan.
#[derive(Debug, Default)]
struct ScanBlock {
    bytes: Vec<u8>,
    /// Job and end of its record in `bytes`.
    ends: Vec<(Seq, usize)>,
}

/// Reads all live records in order and verifies their checksums.
fn read_records(
    connection: &Connection,
    block_tx: &SyncSender<ScanBlock>,
    spare_blocks: &Receiver<ScanBlock>,
) -> Result<(), StoreError> {
    let mut select = connection.prepare("SELECT seq, record FROM live_jobs ORDER BY seq").map_err(sql)?;
    let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("live_jobs"));
    let mut block = ScanBlock::default();
    while let Some(row) = rows.next().map_err(sql)? {
        let seq = Seq(row.get::<_, i64>(0).map_err(sql)?.cast_unsigned());
        order.next(seq)?;
        let stored = row.get_ref(1).map_err(sql)?.as_blob().ok();
        let record = stored.and_then(|stored| codec::verify_checksum(seq.0, stored).ok());
        block.bytes.extend_from_slice(record.ok_or_else(|| corrupt(&format!("the record of job {seq}")))?);
        block.ends.push((seq, block.bytes.len()));
        if block.ends.len() == BLOCK_JOBS {
            let full = std::mem::replace(&mut block, spare_blocks.try_recv().unwrap_or_default());
            if block_tx.send(full).is_err() {
                // The indexing thread stopped at a corrupt record and returns the error.
                return Ok(());
            }
        }
    }
    drop(block_tx.send(block));
    Ok(())
}

/// Decodes the headers of the records and adds them to the engine and to the index.
fn index_records(
    blocks: Receiver<ScanBlock>,
    spare_tx: &Sender<ScanBlock>,
    dictionary: &Dictionary,
    engine: &mut Engine,
    live: &mut LiveIndex,
) -> Result<(), StoreError> {
    let mut headers = Vec::new();
    for mut block in blocks {
        let mut start = 0;
        for (seq, end) in block.ends.drain(..) {
            let record = block.bytes.get(start..end).unwrap_or_default();
            let header = codec::job::decode_head(seq, record, dictionary);
            headers.push(header.map_err(|_| corrupt(&format!("the record of job {seq}")))?);
            start = end;
        }
        engine.bulk_load(&headers.iter().map(RecordHeader::outline).collect::<Vec<_>>());
        live.admit(&headers);
        headers.clear();
        block.bytes.clear();
        drop(spare_tx.send(block));
    }
    Ok(())
}
