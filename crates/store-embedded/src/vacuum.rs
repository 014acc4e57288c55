//! Incremental vacuum: returns free pages of the database to the file system, in short slices.
//!
//! SQLite reuses the pages of deleted rows. After a large deletion, or on a full disk, the file
//! system needs them more. A tick starts a slice, after its reply and in a commit of its own.
//! Requests wait for the slice, so it is short, and the pause after it is so long that fewer than
//! one request in a hundred meets a slice.

use std::time::Duration as Wait;

use longshore_core::time::{Duration, Timestamp};
use longshore_store::clock::monotonic;
use rusqlite::Connection;

use crate::error::{DiskErrorKind, classify};
use crate::meta::bump_commit_seq;
use crate::schema::ClockMode;
use crate::writer::StoreWriter;

/// Free pages that stay in the file: 16 MiB, and a quarter of the file.
const FREE_PAGES_KEEP: i64 = 4_096;
const FREE_DIVISOR_KEEP: i64 = 4;
/// Free pages that stay on a full disk.
const FREE_PAGES_KEEP_FULL: i64 = 256;
/// A slice runs steps of this size until [`SLICE`] has passed.
const STEP: &str = "PRAGMA incremental_vacuum(64)";
const SLICE: Wait = Wait::from_millis(2);
const STEPS_MAX: usize = 16;
/// Pause after a slice, as a multiple of its duration: under load, and in an idle store or on a
/// full disk.
const REST_FACTOR_BUSY: u32 = 100;
const REST_FACTOR_IDLE: u32 = 4;
/// Pause after a slice that failed for lack of space, and upper bound for a running slice.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct IncrementalVacuum {
    /// False for a store in memory.
    is_enabled: bool,
    /// Slices request ticks only in real time: virtual time does not advance for them.
    is_real_time: bool,
    /// Rows were deleted since the last check.
    is_dirty: bool,
    /// Time of the next slice. `None`: too few free pages.
    due: Option<Timestamp>,
    /// A tick has started a slice.
    is_requested: bool,
    /// Commits of the store at the end of the last slice.
    commits: u64,
    /// Slices since the last log line, and the pages that they returned.
    slices: u64,
    pages: u64,
}

impl IncrementalVacuum {
    pub(crate) fn new(is_enabled: bool, clock_mode: ClockMode) -> Self {
        let is_real_time = clock_mode == ClockMode::Real;
        Self {
            is_enabled,
            is_real_time,
            is_dirty: true,
            due: None,
            is_requested: false,
            commits: 0,
            slices: 0,
            pages: 0,
        }
    }

    pub(crate) fn mark_dirty(&mut self) {
        self.is_dirty = true;
    }

    pub(crate) fn on_tick(&mut self, now: Timestamp) {
        if self.due.is_some_and(|due| due <= now) {
            (self.is_requested, self.due) = (true, Some(now + RETRY_PAUSE));
        }
    }

    /// Logs the slices since the last line, once no more are due.
    fn log(&mut self) {
        let (slices, pages) = (std::mem::take(&mut self.slices), std::mem::take(&mut self.pages));
        tracing::info!(pages, slices, "free pages returned to the file system");
    }

    /// Returns when the next slice needs a tick.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.due.filter(|_| self.is_real_time)
    }
}

impl StoreWriter {
    /// Runs a slice if a tick has requested one. The writer calls it after the replies of a batch.
    pub(crate) fn vacuum_between_commits(&mut self) {
        let is_requested = std::mem::take(&mut self.vacuum.is_requested);
        let is_dirty = std::mem::take(&mut self.vacuum.is_dirty) && self.vacuum.due.is_none();
        if !self.vacuum.is_enabled || !(is_requested || is_dirty) || self.shared.is_poisoned() {
            return;
        }
        let done = if is_requested { self.vacuum_slice() } else { Ok(Duration::ZERO) };
        let next = done.and_then(|rest| Ok(self.should_vacuum()?.then_some(rest)));
        let now = self.clock.now();
        self.vacuum.due = match next {
            Ok(Some(rest)) if self.vacuum.is_real_time => Some(now + rest),
            Ok(Some(_)) => Some(now),
            Ok(None) => {
                if is_requested {
                    self.vacuum.log();
                    // The checkpoint truncates the database file.
                    self.checkpoints.request();
                }
                None
            }
            Err(error) if classify(&self.location, &error) == DiskErrorKind::Full && self.roll_back_slice() => {
                Some(now + RETRY_PAUSE)
            }
            Err(error) => return self.shared.poison(&error),
        };
        self.publish_next_deadline();
    }

    /// Vacuums for one slice. Returns the pause after it.
    fn vacuum_slice(&mut self) -> rusqlite::Result<Duration> {
        let start = monotonic();
        let connection = self.records.connection();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut pages = 0;
        for _ in 0..STEPS_MAX {
            pages += step(connection)?;
            if monotonic() - start >= SLICE || free_pages(connection)? == 0 {
                break;
            }
        }
        let commit_seq = self.commit_seq + 1;
        bump_commit_seq(connection, commit_seq, self.syncs.synced_seq())?;
        connection.execute_batch("COMMIT")?;
        self.commit_seq = commit_seq;
        self.syncs.mark_synced(commit_seq);
        let commits = self.shared.commits();
        // The ticks of the slices commit, too.
        let is_idle = commits.saturating_sub(self.vacuum.commits) <= 2;
        self.vacuum.commits = commits;
        let factor =
            if is_idle || self.reserve.missing_bytes().is_some() { REST_FACTOR_IDLE } else { REST_FACTOR_BUSY };
        let elapsed = monotonic() - start;
        tracing::debug!(pages, ?elapsed, "incremental vacuum");
        self.vacuum.slices += 1;
        self.vacuum.pages += pages;
        let rest = elapsed * factor;
        Ok(Duration::from_millis(u64::try_from(rest.as_millis()).unwrap_or(u64::MAX).max(1)))
    }

    fn roll_back_slice(&self) -> bool {
        let connection = self.records.connection();
        connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok()
    }

    fn should_vacuum(&self) -> rusqlite::Result<bool> {
        let connection = self.records.connection();
        let free = free_pages(connection)?;
        if self.reserve.missing_bytes().is_some() {
            return Ok(free > FREE_PAGES_KEEP_FULL);
        }
        let pages: i64 = connection.prepare_cached("PRAGMA page_count")?.query_row([], |row| row.get(0))?;
        Ok(free > FREE_PAGES_KEEP && free > pages / FREE_DIVISOR_KEEP)
    }
}

fn free_pages(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA freelist_count")?.query_row([], |row| row.get(0))
}

/// Vacuums some pages and returns their number; SQLite returns one row per page.
fn step(connection: &Connection) -> rusqlite::Result<u64> {
    let mut vacuum = connection.prepare_cached(STEP)?;
    let mut rows = vacuum.query([])?;
    let mut pages = 0;
    while rows.next()?.is_some() {
        pages += 1;
    }
    Ok(pages)
}
