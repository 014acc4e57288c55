//! Moving what the log holds into the database, beside the writer.
//!
//! A thread with a connection of its own copies page after page while the writer goes on appending. Each round leaves only what was
//! written during it, so a few rounds leave little; then the writer copies that rest itself, which lets the log start again from its beginning.
//!
//! Between two rounds the log alone holds what was acknowledged. The same thread notes beside it how far that has come, within a second of each commit,
//! so that a log which went missing, or lost more than its last moments, is missed. In a store of real time it also notes the time, now and then and at the end.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use longshore_store::StoreError;
use longshore_store::clock::monotonic;
use rusqlite::Connection;

use crate::error::{DiskErrorKind, classify, io_as_sqlite, sql};
use crate::schema::{self, ClockMode, Location, Role};
use crate::wal;
use crate::watermark::WatermarkFile;
use crate::writer::Shared;

/// Pages in the log before it is worth copying them.
const CHECKPOINT_MIN_PAGES: i64 = 4_000;
/// Pages that the writer may be asked to copy itself.
const WRITER_PAGES_MAX: i64 = 128;
const ROUNDS_MAX: usize = 8;
/// Commits between two looks at the log.
const CHECK_EVERY_COMMITS: usize = 16;
/// A note is one more sync for the disk.
const WATERMARK_INTERVAL: Duration = Duration::from_secs(1);
/// The time is noted this often while nothing is committed.
const IDLE_NOTES_APART: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Checkpoints {
    worker: Option<Worker>,
    commits: usize,
    /// Closed last: closing any handle of a file gives up the locks that SQLite has on it.
    _database: Option<Arc<File>>,
}

#[derive(Debug)]
struct Worker {
    wake_tx: SyncSender<()>,
    slate: Arc<CheckpointState>,
    thread: JoinHandle<()>,
}

/// What the writer and the copying thread tell each other.
#[derive(Debug, Default)]
struct CheckpointState {
    /// The log is to be copied.
    copy: AtomicBool,
    /// The rest is small: the writer's turn.
    ready: AtomicBool,
    /// The mark of the last commit.
    committed: AtomicI64,
    /// Nothing is left to note: the next commit has to ring.
    asleep: AtomicBool,
}

impl Checkpoints {
    pub(crate) fn none() -> Self {
        Self { worker: None, commits: 0, _database: None }
    }

    pub(crate) fn start(database: &Path, mark: i64, time: ClockMode, shared: &Arc<Shared>) -> Result<Self, StoreError> {
        let location = Location::File(database.to_owned());
        let connection = location.open(Role::Checkpointer).map_err(sql)?;
        let guard = location.open(Role::Reader).map_err(sql)?;
        let file = Arc::new(File::open(database).map_err(StoreError::not_applied)?);
        let slate = Arc::new(CheckpointState { committed: AtomicI64::new(mark), ..CheckpointState::default() });
        let (bell, rung) = sync_channel(1);
        let (shared, database) = (Arc::clone(shared), Arc::clone(&file));
        let slate_here = Arc::clone(&slate);
        let copier =
            CheckpointThread { location, connection, guard, database, slate: slate_here, shared, wake_rx: rung, time };
        let work = move || {
            if let Err(error) = copier.run() {
                copier.shared.poison(&error);
            }
        };
        let thread =
            Builder::new().name("longshore-checkpoint".to_owned()).spawn(work).map_err(StoreError::not_applied)?;
        Ok(Self { worker: Some(Worker { wake_tx: bell, slate, thread }), commits: 0, _database: Some(file) })
    }

    /// Called by the writer between two commits.
    pub(crate) fn run_on_writer(
        &mut self,
        connection: &Connection,
        mark: i64,
        shared: &Shared,
    ) -> rusqlite::Result<()> {
        let Some(worker) = &self.worker else { return Ok(()) };
        worker.slate.committed.store(mark, Ordering::SeqCst);
        if worker.slate.asleep.swap(false, Ordering::SeqCst) {
            worker.ring();
        }
        // Somebody reads ahead: the next commit will do.
        if let Ok(_nobody) = shared.prefetch_lock.try_lock()
            && worker.slate.ready.swap(false, Ordering::SeqCst)
        {
            wal::advance_watermark(&shared.noted, mark)?;
            return checkpoint(connection, "PASSIVE").map(drop);
        }
        self.commits += 1;
        if self.commits < CHECK_EVERY_COMMITS {
            return Ok(());
        }
        self.commits = 0;
        let (log, _) = checkpoint(connection, "NOOP")?;
        if log >= CHECKPOINT_MIN_PAGES {
            self.wake();
        }
        Ok(())
    }

    /// Lets the log be copied now, however short it is.
    pub(crate) fn wake(&self) {
        if let Some(worker) = &self.worker {
            worker.slate.copy.store(true, Ordering::SeqCst);
            worker.ring();
        }
    }

    /// Ends the copying beside the writer.
    pub(crate) fn stop(&mut self) {
        if let Some(Worker { wake_tx: bell, thread, .. }) = self.worker.take() {
            drop(bell);
            drop(thread.join());
        }
    }
}

impl Worker {
    fn ring(&self) {
        // A bell that rings already is as good.
        let _ = self.wake_tx.try_send(());
    }
}

/// The thread beside the writer.
struct CheckpointThread {
    location: Location,
    connection: Connection,
    guard: Connection,
    database: Arc<File>,
    slate: Arc<CheckpointState>,
    shared: Arc<Shared>,
    wake_rx: Receiver<()>,
    time: ClockMode,
}

impl CheckpointThread {
    /// Works until the writer is gone, or something fails.
    fn run(&self) -> rusqlite::Result<()> {
        // As it was opened: the first commit need not wait for its note.
        let mut noted = self.slate.committed.load(Ordering::SeqCst);
        self.note(noted)?;
        let mut rest_until = None;
        while self.wait(rest_until, noted) {
            if self.slate.copy.swap(false, Ordering::SeqCst) {
                self.copy()?;
                self.slate.ready.store(true, Ordering::SeqCst);
            }
            if rest_until.is_none_or(|until| monotonic() >= until) {
                let committed = self.slate.committed.load(Ordering::SeqCst);
                rest_until = (committed > noted).then(|| monotonic() + WATERMARK_INTERVAL);
                self.note(committed)?;
                noted = committed;
            }
        }
        // After a failure the files stay as they are.
        if self.shared.poisoned() { Ok(()) } else { self.note(noted) }
    }

    /// Until there is something to do; false once the writer is gone.
    fn wait(&self, rest_until: Option<Duration>, noted: i64) -> bool {
        if let Some(until) = rest_until {
            let rest = until.saturating_sub(monotonic());
            return self.wake_rx.recv_timeout(rest) != Err(RecvTimeoutError::Disconnected);
        }
        self.slate.asleep.store(true, Ordering::SeqCst);
        // A commit that came before this was said has not rung.
        let woken = self.slate.committed.load(Ordering::SeqCst) > noted || self.sleep();
        self.slate.asleep.store(false, Ordering::SeqCst);
        woken
    }

    /// Until the bell rings, or the time has to be noted; false once the writer is gone.
    fn sleep(&self) -> bool {
        match self.time {
            ClockMode::Real => self.wake_rx.recv_timeout(IDLE_NOTES_APART) != Err(RecvTimeoutError::Disconnected),
            ClockMode::Virtual => self.wake_rx.recv().is_ok(),
        }
    }

    fn note(&self, mark: i64) -> rusqlite::Result<()> {
        match wal::advance_watermark(&self.shared.noted, mark) {
            // Tried again with the next one.
            Err(error) if classify(&self.location, &error) == DiskErrorKind::Full => Ok(()),
            noted => noted,
        }
    }

    fn copy(&self) -> rusqlite::Result<()> {
        for _ in 0..ROUNDS_MAX {
            match checkpoint_with_watermark(&self.connection, &self.guard, &self.shared.noted) {
                Ok((log, copied)) => {
                    // SQLite syncs the database only with the last page of the log: it is better done here than in the writer's turn.
                    self.database.sync_data().map_err(|error| io_as_sqlite(&error))?;
                    if log - copied <= WRITER_PAGES_MAX {
                        break;
                    }
                }
                // The log keeps what does not fit now.
                Err(error) if classify(&self.location, &error) == DiskErrorKind::Full => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Copies what was committed up to now, and notes before how far that is. The guard stays at this moment meanwhile: SQLite copies nothing that is later
/// than what somebody reads.
pub(crate) fn checkpoint_with_watermark(
    connection: &Connection,
    guard: &Connection,
    noted: &Mutex<WatermarkFile>,
) -> rusqlite::Result<(i64, i64)> {
    let moment = guard.unchecked_transaction()?;
    let mark = schema::mark(&moment).map_err(|error| io_as_sqlite(&io::Error::other(error)))?;
    wal::advance_watermark(noted, mark)?;
    checkpoint(connection, "PASSIVE")
}

/// Pages in the log, and how many of them are in the database.
pub(crate) fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<(i64, i64)> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
    statement.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}
