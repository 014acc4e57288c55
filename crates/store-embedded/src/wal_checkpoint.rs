//! Checkpoint thread: copies WAL frames into the database while the writer appends, and writes the
//! watermark.
//!
//! [`Checkpointer`]: each round copies the frames that were committed before it, so a few rounds
//! leave little. The writer copies the rest itself, which lets SQLite restart the WAL.
//!
//! [`WatermarkWriter`]: between two checkpoints only the WAL holds the acknowledged commits. The
//! watermark follows within a second of each commit, so recovery notices a WAL that is missing or
//! has lost more than the last second. In real time it also records the time.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use longshore_core::time::Timestamp;
use longshore_store::StoreError;
use longshore_store::clock::monotonic;
use longshore_vfs::StoreFiles;
use parking_lot::Mutex;
use rusqlite::Connection;

use crate::error::{DiskErrorKind, classify, io_as_sqlite, sql};
use crate::meta::{self, CommitRecord};
use crate::schema::ClockMode;
use crate::shared::SharedState;
use crate::sqlite::{Location, Role};
use crate::store::EmbeddedOptions;
use crate::sync_policy::SyncPolicy;
use crate::watermark::WatermarkFile;

/// WAL pages that start a checkpoint.
pub(crate) const CHECKPOINT_MIN_PAGES: i64 = 4_000;
/// WAL pages that the writer copies itself.
const WRITER_PAGES_MAX: i64 = 128;
/// Rounds of one checkpoint.
const ROUNDS_MAX: usize = 8;
/// Commits between two measurements of the WAL.
const CHECK_EVERY_COMMITS: usize = 16;
/// Interval of the watermark while the writer commits. Each write costs one sync.
const WATERMARK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval in which an idle store records the time.
const IDLE_WATERMARK_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest time between two log lines about checkpoints.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// The writer's side of the checkpoint thread.
#[derive(Debug)]
pub(crate) struct CheckpointHandle {
    worker: Option<CheckpointWorker>,
    commits: usize,
    /// WAL pages that start a checkpoint.
    min_pages: i64,
    /// Closed last: closing any handle of a file releases the locks that SQLite holds on it.
    _database: Option<Arc<File>>,
}

#[derive(Debug)]
struct CheckpointWorker {
    wake_tx: SyncSender<()>,
    state: Arc<CheckpointState>,
    thread: JoinHandle<()>,
}

/// State that the writer and the checkpoint thread share.
#[derive(Debug, Default)]
struct CheckpointState {
    /// The writer requests a checkpoint.
    is_requested: AtomicBool,
    /// Few pages are left: the writer copies them.
    writer_may_finish: AtomicBool,
    /// Sequence number of the last commit.
    commit_seq: AtomicI64,
    /// Last commit that the writer has synced.
    synced_seq: AtomicI64,
    /// The thread sleeps without a timeout: the next commit has to wake it.
    is_asleep: AtomicBool,
}

impl CheckpointHandle {
    /// Creates the handle of a store in memory, which has no WAL.
    pub(crate) fn none() -> Self {
        Self { worker: None, commits: 0, min_pages: i64::MAX, _database: None }
    }

    pub(crate) fn start(
        database: &Path,
        commit_seq: i64,
        options: &EmbeddedOptions,
        files: &Arc<StoreFiles>,
        shared: &Arc<SharedState>,
    ) -> Result<Self, StoreError> {
        let location = Location::File(database.to_owned());
        let file = Arc::new(File::open(database).map_err(StoreError::not_applied)?);
        let state = Arc::new(CheckpointState { commit_seq: AtomicI64::new(commit_seq), ..CheckpointState::default() });
        let (wake_tx, wake_rx) = sync_channel(1);
        let wal = WalSync {
            file: files.open_wal().map_err(StoreError::not_applied)?,
            path: files.wal_path(),
            files: Arc::clone(files),
        };
        let mut thread = CheckpointThread {
            checkpointer: Checkpointer {
                connection: location.open(Role::Checkpointer).map_err(sql)?,
                snapshot: location.open(Role::Reader).map_err(sql)?,
                location: location.clone(),
                database: Arc::clone(&file),
                database_path: database.to_owned(),
                shared: Arc::clone(shared),
                log: CheckpointLog::default(),
            },
            wal,
            watermark: WatermarkWriter { location, shared: Arc::clone(shared), written_seq: commit_seq, next_at: None },
            state: Arc::clone(&state),
            wake_rx,
            clock_mode: options.clock_mode,
        };
        let work = move || {
            if let Err(error) = thread.run() {
                thread.checkpointer.shared.poison(&error);
            }
        };
        let thread =
            Builder::new().name("longshore-checkpoint".to_owned()).spawn(work).map_err(StoreError::not_applied)?;
        let worker = Some(CheckpointWorker { wake_tx, state, thread });
        Ok(Self { worker, commits: 0, min_pages: options.checkpoint_pages, _database: Some(file) })
    }

    /// Runs the writer's share of a checkpoint. The writer calls it between two commits.
    pub(crate) fn run_on_writer(
        &mut self,
        connection: &Connection,
        commit_seq: i64,
        syncs: &mut SyncPolicy,
        shared: &SharedState,
    ) -> rusqlite::Result<()> {
        let Some(worker) = &self.worker else { return Ok(()) };
        worker.state.synced_seq.store(syncs.synced_seq(), Ordering::SeqCst);
        worker.state.commit_seq.store(commit_seq, Ordering::SeqCst);
        if worker.state.is_asleep.swap(false, Ordering::SeqCst) {
            worker.wake();
        }
        // While the prefetch thread reads, the WAL cannot restart: the next commit tries again.
        if let Some(_no_prefetch) = shared.prefetch_lock.try_lock()
            && worker.state.writer_may_finish.swap(false, Ordering::SeqCst)
        {
            syncs.sync_up_to(commit_seq)?;
            advance_watermark(&shared.watermark, commit_seq)?;
            return checkpoint(connection, "PASSIVE").map(drop);
        }
        self.commits += 1;
        if self.commits < CHECK_EVERY_COMMITS {
            return Ok(());
        }
        self.commits = 0;
        let (wal_pages, _) = checkpoint(connection, "NOOP")?;
        if wal_pages >= self.min_pages {
            self.request();
        }
        Ok(())
    }

    /// Requests a checkpoint, even of a short WAL.
    pub(crate) fn request(&self) {
        if let Some(worker) = &self.worker {
            worker.state.is_requested.store(true, Ordering::SeqCst);
            worker.wake();
        }
    }

    /// Stops the thread.
    pub(crate) fn stop(&mut self) {
        if let Some(CheckpointWorker { wake_tx, thread, .. }) = self.worker.take() {
            drop(wake_tx);
            drop(thread.join());
        }
    }
}

impl CheckpointWorker {
    fn wake(&self) {
        // A full channel means that the thread is already awake.
        let _ = self.wake_tx.try_send(());
    }
}

struct CheckpointThread {
    checkpointer: Checkpointer,
    watermark: WatermarkWriter,
    state: Arc<CheckpointState>,
    wal: WalSync,
    wake_rx: Receiver<()>,
    clock_mode: ClockMode,
}

/// Syncs the WAL beside the writer.
struct WalSync {
    file: File,
    path: PathBuf,
    files: Arc<StoreFiles>,
}

impl WalSync {
    fn sync(&self) -> rusqlite::Result<()> {
        self.files.sync(&self.path, &self.file).map_err(|error| io_as_sqlite(&error))
    }
}

impl CheckpointThread {
    /// Works until the writer is gone or a write fails.
    fn run(&mut self) -> rusqlite::Result<()> {
        // Records the state at open, so the first commit has an older watermark below it.
        self.watermark.write(self.watermark.written_seq)?;
        while self.wait() {
            if self.state.is_requested.swap(false, Ordering::SeqCst) {
                self.checkpointer.run(&self.wal)?;
                self.state.writer_may_finish.store(true, Ordering::SeqCst);
            }
            let commit_seq = self.state.commit_seq.load(Ordering::SeqCst);
            if self.watermark.is_due() && commit_seq > self.state.synced_seq.load(Ordering::SeqCst) {
                // The watermark may cover synced commits only.
                self.wal.sync()?;
                self.state.synced_seq.fetch_max(commit_seq, Ordering::SeqCst);
            }
            self.watermark.follow(commit_seq)?;
        }
        // After a failed write the files stay as they are.
        if self.checkpointer.shared.is_poisoned() { Ok(()) } else { self.watermark.write(self.watermark.written_seq) }
    }

    /// Waits for work. Returns false once the writer is gone.
    fn wait(&self) -> bool {
        if let Some(next_at) = self.watermark.next_at {
            let rest = next_at.saturating_sub(monotonic());
            return self.wake_rx.recv_timeout(rest) != Err(RecvTimeoutError::Disconnected);
        }
        self.state.is_asleep.store(true, Ordering::SeqCst);
        // A commit before this store has not sent a wakeup.
        let pending = self.state.commit_seq.load(Ordering::SeqCst) > self.watermark.written_seq;
        let is_open = pending || self.sleep();
        self.state.is_asleep.store(false, Ordering::SeqCst);
        is_open
    }

    /// Sleeps until a wakeup, in real time until the time has to be recorded.
    fn sleep(&self) -> bool {
        match self.clock_mode {
            ClockMode::Real => {
                self.wake_rx.recv_timeout(IDLE_WATERMARK_INTERVAL) != Err(RecvTimeoutError::Disconnected)
            }
            ClockMode::Virtual => self.wake_rx.recv().is_ok(),
        }
    }
}

/// Copies WAL frames into the database.
struct Checkpointer {
    location: Location,
    connection: Connection,
    /// Limits a round to the commits that the watermark covers.
    snapshot: Connection,
    database: Arc<File>,
    database_path: PathBuf,
    shared: Arc<SharedState>,
    log: CheckpointLog,
}

impl Checkpointer {
    fn run(&mut self, wal: &WalSync) -> rusqlite::Result<()> {
        let start = monotonic();
        for round in 1..=ROUNDS_MAX {
            let sync_wal = || wal.sync();
            match checkpoint_with_watermark(&self.connection, &self.snapshot, &self.shared.watermark, &sync_wal) {
                Ok((wal_pages, copied)) => {
                    // SQLite syncs the database only with the last frame of the WAL. A sync here
                    // spares the writer from it.
                    let synced = wal.files.sync(&self.database_path, &self.database);
                    synced.map_err(|error| io_as_sqlite(&error))?;
                    if wal_pages - copied <= WRITER_PAGES_MAX || round == ROUNDS_MAX {
                        self.log.record(copied, start, monotonic());
                        break;
                    }
                }
                // The frames stay in the WAL until the disk has space.
                Err(error) if classify(&self.location, &error) == DiskErrorKind::Full => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Checkpoints since the last log line. A busy store makes several per second, so lines are limited
/// to one per [`LOG_INTERVAL`].
#[derive(Debug, Default)]
struct CheckpointLog {
    checkpoints: u64,
    pages: i64,
    busy: Duration,
    logged_at: Option<Duration>,
}

impl CheckpointLog {
    /// Returns whether a line was logged.
    fn record(&mut self, pages: i64, start: Duration, end: Duration) -> bool {
        self.checkpoints += 1;
        self.pages += pages;
        self.busy += end.saturating_sub(start);
        if self.logged_at.is_some_and(|at| end.saturating_sub(at) < LOG_INTERVAL) {
            return false;
        }
        let Self { checkpoints, pages, busy, .. } = *self;
        tracing::info!(checkpoints, pages, ?busy, "WAL copied into the database");
        *self = Self { logged_at: Some(end), ..Self::default() };
        true
    }
}

/// Writes the watermark at most once per [`WATERMARK_INTERVAL`].
struct WatermarkWriter {
    location: Location,
    shared: Arc<SharedState>,
    written_seq: i64,
    /// Earliest time of the next write. `None`: the watermark covers the last commit.
    next_at: Option<Duration>,
}

impl WatermarkWriter {
    /// Writes the watermark unless the last write is too recent.
    fn follow(&mut self, commit_seq: i64) -> rusqlite::Result<()> {
        if !self.is_due() {
            return Ok(());
        }
        self.next_at = (commit_seq > self.written_seq).then(|| monotonic() + WATERMARK_INTERVAL);
        self.write(commit_seq)?;
        self.written_seq = commit_seq;
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.next_at.is_none_or(|next_at| monotonic() >= next_at)
    }

    fn write(&self, commit_seq: i64) -> rusqlite::Result<()> {
        match advance_watermark(&self.shared.watermark, commit_seq) {
            // The next write tries again.
            Err(error) if classify(&self.location, &error) == DiskErrorKind::Full => Ok(()),
            written => written,
        }
    }
}

/// Records that a commit is durable. A checkpoint copies no frame above the watermark.
pub(crate) fn advance_watermark(watermark: &Mutex<WatermarkFile>, commit_seq: i64) -> rusqlite::Result<()> {
    let mut watermark = watermark.lock();
    watermark.advance(commit_seq).map_err(|error| io_as_sqlite(&error))
}

/// Syncs the WAL, advances the watermark and runs one checkpoint round up to it.
///
/// The open snapshot limits the round: SQLite copies no frame that is newer than a reader. The sync
/// comes after the start of the snapshot, so it covers all of its commits.
pub(crate) fn checkpoint_with_watermark(
    connection: &Connection,
    snapshot: &Connection,
    watermark: &Mutex<WatermarkFile>,
    sync_wal: &dyn Fn() -> rusqlite::Result<()>,
) -> rusqlite::Result<(i64, i64)> {
    let snapshot = snapshot.unchecked_transaction()?;
    let commit_seq = meta::commit_seq(&snapshot).map_err(|error| io_as_sqlite(&io::Error::other(error)))?;
    sync_wal()?;
    advance_watermark(watermark, commit_seq)?;
    checkpoint(connection, "PASSIVE")
}

/// What recovery stores after an unclean stop, before the WAL is emptied: an empty WAL looks like a
/// clean stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewEpoch {
    pub epoch: u64,
    /// Latest time of a commit that may be lost. `None` in virtual time.
    pub lost_until: Option<Timestamp>,
}

/// Copies the whole WAL into the database and truncates it. Returns its frames.
///
/// The checkpoint follows a commit of its own, so the copied pages carry a number above the last
/// commit.
///
/// The same commit stores a new epoch of the lease versions, if there is one.
pub(crate) fn truncate_wal(
    connection: &Connection,
    commit_seq: i64,
    new_epoch: Option<NewEpoch>,
    watermark: &Mutex<WatermarkFile>,
) -> rusqlite::Result<i64> {
    let wal_pages = count_wal_frames(connection)?;
    if wal_pages > 0 {
        let transaction = connection.unchecked_transaction()?;
        // The frames before this commit may not be synced: the sync of this commit covers them.
        meta::bump_commit_seq(&transaction, commit_seq + 1, CommitRecord::NONE_SYNCED)?;
        if let Some(NewEpoch { epoch, lost_until }) = new_epoch {
            meta::set_integer(&transaction, meta::EPOCH, epoch.cast_signed())?;
            if let Some(lost_until) = lost_until {
                meta::set_lost_until(&transaction, lost_until)?;
            }
        }
        transaction.commit()?;
        advance_watermark(watermark, commit_seq + 1)?;
    }
    checkpoint(connection, "TRUNCATE")?;
    Ok(wal_pages)
}

/// Returns the frames in the WAL, checkpointed or not.
pub(crate) fn count_wal_frames(connection: &Connection) -> rusqlite::Result<i64> {
    checkpoint(connection, "NOOP").map(|(wal_pages, _)| wal_pages)
}

/// Runs `PRAGMA wal_checkpoint`. Returns the pages in the WAL and how many of them are copied.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<(i64, i64)> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
    statement.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_logged_at_most_once_per_interval() {
        let mut log = CheckpointLog::default();
        let second = Duration::from_secs(1);
        assert!(log.record(4_000, second, second * 2));
        assert!(!log.record(4_000, second * 3, second * 4));
        assert!(!log.record(5_000, second * 30, second * 31));
        assert_eq!((log.checkpoints, log.pages, log.busy), (2, 9_000, second * 2));
        assert!(log.record(4_000, second * 31, second * 32));
        assert_eq!((log.checkpoints, log.pages, log.busy), (0, 0, Duration::ZERO));
    }
}
