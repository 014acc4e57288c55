//! Moving what the log holds into the database, beside the writer.
//!
//! A thread with a connection of its own copies page after page while the writer goes on appending. Each round leaves only what was
//! written during it, so a few rounds leave little; then the writer copies that rest itself, which lets the log start again from its beginning.
//!
//! Between two rounds the log alone holds what was acknowledged. How far that has come is noted beside it now and then, so that a log which went
//! missing, or lost more than its last moments, is missed.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use longshore_core::time::{Duration, Timestamp};
use longshore_store::StoreError;
use rusqlite::Connection;

use crate::error::{Kind, kind_at, of_file, sql};
use crate::log;
use crate::noted::Noted;
use crate::schema::{self, Location, Role};
use crate::writer::Shared;

/// Pages in the log before it is worth copying them.
const LOG_PAGES_WORTH: i64 = 4_000;
/// Pages that the writer may be asked to copy itself.
const REST_PAGES_MAX: i64 = 128;
const ROUNDS_MAX: usize = 8;
/// Commits between two looks at the log.
const LOOK_EVERY: usize = 16;
/// A note is one more sync for the writer: it comes after the first commit, and then no more often than this.
const NOTES_APART: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Checkpoints {
    worker: Option<Worker>,
    commits: usize,
    /// When the writer last noted how far it had come.
    noted_at: Option<Timestamp>,
    /// Closed last: closing any handle of a file gives up the locks that SQLite has on it.
    _database: Option<Arc<File>>,
}

#[derive(Debug)]
struct Worker {
    wake: SyncSender<()>,
    /// The rest is small: the writer's turn.
    ready: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    pub(crate) fn none() -> Self {
        Self { worker: None, commits: 0, noted_at: None, _database: None }
    }

    pub(crate) fn start(database: &Path, shared: &Arc<Shared>) -> Result<Self, StoreError> {
        let location = Location::File(database.to_owned());
        let connection = location.open(Role::Checkpointer).map_err(sql)?;
        let guard = location.open(Role::Reader).map_err(sql)?;
        let file = Arc::new(File::open(database).map_err(StoreError::not_applied)?);
        let synced = Arc::clone(&file);
        let (wake, woken) = sync_channel(1);
        let ready = Arc::new(AtomicBool::new(false));
        let (told, shared) = (Arc::clone(&ready), Arc::clone(shared));
        let work = move || {
            while woken.recv().is_ok() {
                for _ in 0..ROUNDS_MAX {
                    let round = copy_noted(&connection, &guard, &shared.noted);
                    // SQLite syncs the database only with the last page of the log: it is better done here than in the writer's turn.
                    if round.is_ok() && synced.sync_data().is_err() {
                        return shared.poison();
                    }
                    match round {
                        Ok((log, copied)) if log - copied > REST_PAGES_MAX => {}
                        Ok(_) => break,
                        // The log keeps what does not fit now.
                        Err(error) if kind_at(&location, &error) == Kind::Full => break,
                        Err(_) => return shared.poison(),
                    }
                }
                told.store(true, Ordering::SeqCst);
            }
        };
        let thread =
            Builder::new().name("longshore-checkpoint".to_owned()).spawn(work).map_err(StoreError::not_applied)?;
        Ok(Self { worker: Some(Worker { wake, ready, thread }), commits: 0, noted_at: None, _database: Some(file) })
    }

    /// Called by the writer between two commits.
    pub(crate) fn take_turn(
        &mut self,
        connection: &Connection,
        mark: i64,
        now: Timestamp,
        shared: &Shared,
    ) -> rusqlite::Result<()> {
        let Some(worker) = &self.worker else { return Ok(()) };
        if self.noted_at.is_none_or(|noted_at| now >= noted_at + NOTES_APART) {
            log::note(&shared.noted, mark)?;
            self.noted_at = Some(now);
        }
        // Somebody reads ahead: the next commit will do.
        if let Ok(_nobody) = shared.reading_ahead.try_lock()
            && worker.ready.swap(false, Ordering::SeqCst)
        {
            log::note(&shared.noted, mark)?;
            return checkpoint(connection, "PASSIVE").map(drop);
        }
        self.commits += 1;
        if self.commits < LOOK_EVERY {
            return Ok(());
        }
        self.commits = 0;
        let (log, _) = checkpoint(connection, "NOOP")?;
        if log >= LOG_PAGES_WORTH {
            self.wake();
        }
        Ok(())
    }

    /// Lets the log be copied now, however short it is.
    pub(crate) fn wake(&self) {
        if let Some(worker) = &self.worker {
            // Already awake is as good.
            let _ = worker.wake.try_send(());
        }
    }

    /// Ends the copying beside the writer.
    pub(crate) fn stop(&mut self) {
        if let Some(Worker { wake, thread, .. }) = self.worker.take() {
            drop(wake);
            drop(thread.join());
        }
    }
}

/// Copies what was committed up to now, and notes before how far that is. The guard stays at this moment meanwhile: SQLite copies nothing that is later
/// than what somebody reads.
pub(crate) fn copy_noted(
    connection: &Connection,
    guard: &Connection,
    noted: &Mutex<Noted>,
) -> rusqlite::Result<(i64, i64)> {
    let moment = guard.unchecked_transaction()?;
    let mark = schema::mark(&moment).map_err(|error| of_file(&io::Error::other(error)))?;
    log::note(noted, mark)?;
    checkpoint(connection, "PASSIVE")
}

/// Pages in the log, and how many of them are in the database.
pub(crate) fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<(i64, i64)> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
    statement.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}
