//! Space in which nothing lies any more goes back to the disk, a slice at a time.
//!
//! SQLite keeps the pages of what was deleted for what will come. That is right while about as much comes as goes; after a great clearing, or on a full
//! disk, others need them more. A tick begins a slice, after its answer and in a commit of its own. A request that comes meanwhile waits for it, so slices are
//! short, and rest so long in between that fewer than one request in a hundred meets one.

use std::time::Duration as Wait;

use longshore_core::time::{Duration, Timestamp};
use longshore_store::clock::monotonic;
use rusqlite::Connection;

use crate::error::{DiskErrorKind, classify};
use crate::schema::{ClockMode, bump_commit_seq};
use crate::writer::Writer;

/// Free pages that stay where they are: 16 MiB, and a quarter of the file.
const FREE_PAGES_KEEP: i64 = 4_096;
const KEPT_PART: i64 = 4;
/// Free pages that stay even on a full disk.
const KEPT_PAGES_WHEN_FULL: i64 = 256;
/// A slice is made of steps of so many pages, until its time is over.
const STEP: &str = "PRAGMA incremental_vacuum(64)";
const SLICE: Wait = Wait::from_millis(2);
const STEPS_MAX: usize = 16;
/// How many times as long as the slice took the rest is; and when nobody else is at work, or the disk is full.
const REST_FACTOR_BUSY: u32 = 100;
const SHORT_REST: u32 = 4;
/// After a slice for which the full disk had no room; also until a slice that was begun is done.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct IncrementalVacuum {
    /// Of a store in memory nothing can be given back.
    possible: bool,
    /// Whether slices may ask for ticks at instants of their own. Virtual time does not pass for them.
    real_time: bool,
    /// Something was deleted since anybody looked.
    stirred: bool,
    /// When the next slice may be begun; `None`: there is not enough to give back.
    due: Option<Timestamp>,
    /// A tick has come for it.
    wanted: bool,
    /// Commits of the store when the last slice was done.
    commits: u64,
}

impl IncrementalVacuum {
    pub(crate) fn new(possible: bool, time: ClockMode) -> Self {
        let real_time = time == ClockMode::Real;
        Self { possible, real_time, stirred: true, due: None, wanted: false, commits: 0 }
    }

    pub(crate) fn mark_dirty(&mut self) {
        self.stirred = true;
    }

    pub(crate) fn tick(&mut self, now: Timestamp) {
        if self.due.is_some_and(|due| due <= now) {
            (self.wanted, self.due) = (true, Some(now + PAUSE));
        }
    }

    /// When a tick would be welcome.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.due.filter(|_| self.real_time)
    }
}

impl Writer {
    /// Called between two commits, when everybody has been answered.
    pub(crate) fn give_back(&mut self) {
        let wanted = std::mem::take(&mut self.give_back.wanted);
        let stirred = std::mem::take(&mut self.give_back.stirred) && self.give_back.due.is_none();
        if !self.give_back.possible || !(wanted || stirred) || self.shared.poisoned() {
            return;
        }
        let given = if wanted { self.vacuum_slice() } else { Ok(Duration::ZERO) };
        let more = given.and_then(|rest| Ok(self.should_vacuum()?.then_some(rest)));
        let now = self.clock.now();
        self.give_back.due = match more {
            Ok(Some(rest)) if self.give_back.real_time => Some(now + rest),
            Ok(Some(_)) => Some(now),
            Ok(None) => {
                if wanted {
                    // The file gets shorter when the log is copied.
                    self.checkpoints.wake();
                }
                None
            }
            Err(error) if classify(&self.location, &error) == DiskErrorKind::Full && self.roll_back_slice() => {
                Some(now + PAUSE)
            }
            Err(error) => return self.shared.poison(&error),
        };
        self.announce_deadline();
    }

    /// Says how long to rest.
    fn vacuum_slice(&mut self) -> rusqlite::Result<Duration> {
        let begin = monotonic();
        let connection = self.records.connection();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..STEPS_MAX {
            step(connection)?;
            if monotonic() - begin >= SLICE || free_pages(connection)? == 0 {
                break;
            }
        }
        let mark = self.commit_seq + 1;
        bump_commit_seq(connection, mark)?;
        connection.execute_batch("COMMIT")?;
        self.commit_seq = mark;
        let commits = self.shared.commits();
        // The ticks that bring the slices commit, too.
        let alone = commits.saturating_sub(self.give_back.commits) <= 2;
        self.give_back.commits = commits;
        let times = if alone || self.reserve.missing_bytes().is_some() { SHORT_REST } else { REST_FACTOR_BUSY };
        let rest = (monotonic() - begin) * times;
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
            return Ok(free > KEPT_PAGES_WHEN_FULL);
        }
        let pages: i64 = connection.prepare_cached("PRAGMA page_count")?.query_row([], |row| row.get(0))?;
        Ok(free > FREE_PAGES_KEEP && free > pages / KEPT_PART)
    }
}

fn free_pages(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA freelist_count")?.query_row([], |row| row.get(0))
}

/// Each page is a row; the last ones of the file go into free places before them.
fn step(connection: &Connection) -> rusqlite::Result<()> {
    let mut vacuum = connection.prepare_cached(STEP)?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    Ok(())
}
