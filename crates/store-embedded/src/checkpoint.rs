//! Moving what the log holds into the database, beside the writer.
//!
//! A thread with a connection of its own copies page after page while the writer goes on appending. Each round leaves only what was
//! written during it, so a few rounds leave little; then the writer copies that rest itself, which lets the log start again from its beginning.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use longshore_store::StoreError;
use rusqlite::Connection;

use crate::error::sql;
use crate::schema::{Location, Role};

/// Pages in the log before it is worth copying them.
const LOG_PAGES_WORTH: i64 = 4_000;
/// Pages that the writer may be asked to copy itself.
const REST_PAGES_MAX: i64 = 128;
const ROUNDS_MAX: usize = 8;
/// Commits between two looks at the log.
const LOOK_EVERY: usize = 16;

#[derive(Debug)]
pub(crate) struct Checkpoints {
    worker: Option<Worker>,
    commits: usize,
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
        Self { worker: None, commits: 0 }
    }

    pub(crate) fn start(location: &Location) -> Result<Self, StoreError> {
        let connection = location.open(Role::Checkpointer).map_err(sql)?;
        let (wake, woken) = sync_channel(1);
        let ready = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ready);
        let work = move || {
            while woken.recv().is_ok() {
                for _ in 0..ROUNDS_MAX {
                    // A failure here is found again by the writer, who must answer for it.
                    let Ok((log, copied)) = checkpoint(&connection, "PASSIVE") else { break };
                    if log - copied <= REST_PAGES_MAX {
                        break;
                    }
                }
                told.store(true, Ordering::SeqCst);
            }
        };
        let thread =
            Builder::new().name("longshore-checkpoint".to_owned()).spawn(work).map_err(StoreError::not_applied)?;
        Ok(Self { worker: Some(Worker { wake, ready, thread }), commits: 0 })
    }

    /// Called by the writer between two commits.
    pub(crate) fn take_turn(&mut self, connection: &Connection) {
        let Some(worker) = &self.worker else { return };
        if worker.ready.swap(false, Ordering::SeqCst) {
            drop(checkpoint(connection, "PASSIVE"));
            return;
        }
        self.commits += 1;
        if self.commits < LOOK_EVERY {
            return;
        }
        self.commits = 0;
        if checkpoint(connection, "NOOP").is_ok_and(|(log, _)| log >= LOG_PAGES_WORTH) {
            // Already awake is as good.
            let _ = worker.wake.try_send(());
        }
    }

    /// Leaves an empty log behind, so that the next start is quick.
    pub(crate) fn finish(&mut self, connection: &Connection) {
        let Some(Worker { wake, thread, .. }) = self.worker.take() else { return };
        drop(wake);
        drop(thread.join());
        drop(checkpoint(connection, "TRUNCATE"));
    }
}

/// Pages in the log, and how many of them are in the database.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<(i64, i64)> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
    statement.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}
