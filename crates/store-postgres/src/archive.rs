//! Moves finished jobs to the archive, creates and drops its partitions, and compacts job counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::state::StateKind;
use longshore_core::time::{Duration, Timestamp};
use parking_lot::Mutex;

use crate::connection::{Connection, TxBoundary, get, stmt};
use crate::error::{TxError, error_chain};
use crate::node::Node;
use crate::retry::TransactionRunner;

/// Jobs of one slice.
const SLICE_MAX: i64 = 1_000;
/// How often a node looks for partitions to drop.
const DROP_INTERVAL: Duration = Duration::from_mins(10);
/// How often the scan for archivable jobs starts over.
const FULL_PASS_INTERVAL: Duration = Duration::from_secs(5);
/// After each slice, archiving pauses for this many times its duration.
const PAUSE_FACTOR: i64 = 2;

/// Archives a slice of finished jobs. Returns when to archive the next one, if there may be more.
pub(crate) async fn run_housekeeping(runner: &mut TransactionRunner) -> Result<Option<Timestamp>, TxError> {
    let node = Arc::clone(&runner.node);
    let archived = archive_slice(runner.connection().await?, &node).await;
    let error = match archived {
        Ok(next) => return Ok(next),
        Err(error) => error,
    };
    runner.reset_connection(&error).await;
    match error {
        // Another node archives the same jobs.
        TxError::Conflict(_) => Ok(None),
        // Another node may have dropped a partition that this one has created. Timers do not
        // depend on the archive.
        TxError::Refused(error) => {
            node.archive.forget_partitions();
            tracing::warn!(error = %error_chain(&error), "cannot archive finished jobs; will retry");
            Ok(None)
        }
        TxError::ConnectionLost(_)
        | TxError::Unknown(_)
        | TxError::NeedsExclusive
        | TxError::TooLarge
        | TxError::Damaged(_)
        | TxError::NotStorable => Err(error),
    }
}

async fn archive_slice(connection: &Connection, node: &Node) -> Result<Option<Timestamp>, TxError> {
    let (sql, archive, clock) = (&node.sql, &node.archive, &node.clock);
    let (state, queue_id, seq) = if clock.is_virtual() { FIRST } else { archive.cursor(clock.now()) };
    let calls =
        [stmt!(sql.compact_counts, node.lock_key - 1), stmt!(sql.archivable_days, SLICE_MAX, state, queue_id, seq)];
    let rows = connection.pipeline(&calls, TxBoundary::None).await?.pop().unwrap_or_default();
    if let Some(now) = archive.next_drop(clock.now()) {
        connection.pipeline(&[stmt!(sql.drop_archive_partitions, now.as_millis())], TxBoundary::None).await?;
    }
    let days = rows.iter().map(|row| get::<i32>(row, 0)).collect::<Result<Vec<_>, _>>()?;
    if days.is_empty() {
        return Ok(archive.next_full_pass());
    }
    if let Some(until) = archive.paused_until(clock.now()) {
        return Ok(Some(until));
    }
    for day in &days {
        if !archive.has_partition(*day) {
            connection.pipeline(&[stmt!(sql.create_archive_partition, *day)], TxBoundary::None).await?;
            archive.add_partition(*day);
        }
    }
    let started = clock.now();
    let call = stmt!(sql.archive, SLICE_MAX, days, state, queue_id, seq);
    let rows = connection.pipeline(&[call], TxBoundary::None).await?.pop().unwrap_or_default();
    archive.pause(started, clock.now());
    let mut archived = 0;
    if let Some(row) = rows.first() {
        archived = get::<i64>(row, 0)?;
        if !clock.is_virtual()
            && let (Some(state), Some(queue_id), Some(seq)) = (get(row, 2)?, get(row, 3)?, get(row, 4)?)
        {
            archive.set_cursor((state, queue_id, seq));
        }
    }
    Ok(if archived >= SLICE_MAX {
        archive.paused_until(clock.now()).or(Some(started))
    } else {
        archive.next_full_pass()
    })
}

/// State, queue and sequence number: the order of `jobs_by_state`.
type StateKey = (i16, i32, i64);

/// Before all finished jobs.
const FIRST: StateKey = (StateKind::Retrying as i16, i32::MAX, i64::MAX);

/// What a node remembers between two slices.
#[derive(Debug, Default)]
pub(crate) struct ArchiveState {
    /// Days that have a partition.
    partitions: Mutex<BTreeSet<i32>>,
    last_drop: Mutex<Option<Timestamp>>,
    /// Start and end of the pause after the last slice.
    pause: Mutex<Option<(Timestamp, Timestamp)>>,
    cursor: Mutex<ArchiveCursor>,
}

/// Last archived job. Index entries before it are dead until a vacuum removes them, except those of
/// jobs that finished later; the next full pass finds these.
#[derive(Debug)]
struct ArchiveCursor {
    key: StateKey,
    started: Option<Timestamp>,
}

impl Default for ArchiveCursor {
    fn default() -> Self {
        Self { key: FIRST, started: None }
    }
}

impl ArchiveState {
    fn has_partition(&self, day: i32) -> bool {
        self.partitions.lock().contains(&day)
    }

    fn add_partition(&self, day: i32) {
        self.partitions.lock().insert(day);
    }

    fn forget_partitions(&self) {
        self.partitions.lock().clear();
    }

    /// Where the next slice starts. Starts over every [`FULL_PASS_INTERVAL`].
    fn cursor(&self, now: Timestamp) -> StateKey {
        let mut cursor = self.cursor.lock();
        if cursor.started.is_none_or(|started| now < started || now >= started + FULL_PASS_INTERVAL) {
            *cursor = ArchiveCursor { key: FIRST, started: Some(now) };
        }
        cursor.key
    }

    fn set_cursor(&self, key: StateKey) {
        self.cursor.lock().key = key;
    }

    /// When the scan starts over. `None`: it is at its start.
    fn next_full_pass(&self) -> Option<Timestamp> {
        let cursor = self.cursor.lock();
        cursor.started.filter(|_| cursor.key != FIRST).map(|started| started + FULL_PASS_INTERVAL)
    }

    /// Pauses after a slice, in proportion to its duration.
    fn pause(&self, started: Timestamp, ended: Timestamp) {
        let duration = (ended.as_millis() - started.as_millis()).max(0);
        let until = Timestamp::from_millis(ended.as_millis() + PAUSE_FACTOR * duration);
        *self.pause.lock() = Some((ended, until));
    }

    fn paused_until(&self, now: Timestamp) -> Option<Timestamp> {
        let pause = *self.pause.lock();
        pause.filter(|(from, until)| (*from..*until).contains(&now)).map(|(_, until)| until)
    }

    /// Returns the time if partitions should be dropped now.
    fn next_drop(&self, now: Timestamp) -> Option<Timestamp> {
        let mut last = self.last_drop.lock();
        if last.is_some_and(|last| now < last + DROP_INTERVAL) {
            return None;
        }
        // A dropped partition may have to be created again.
        self.forget_partitions();
        *last = Some(now);
        Some(now)
    }
}
