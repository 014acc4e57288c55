//! Sorts the rows that a transaction writes by the statement that writes them.

use std::collections::BTreeMap;

use longshore_codec as codec;
use longshore_core::dependency::PendingPropagation;
use longshore_core::id::{QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_engine::ordering;

use super::job_columns::JobColumns;
use super::{Evaluation, Transaction};
use crate::catalog::Catalog;
use crate::connection::SqlValue;
use crate::error::TxError;
use crate::node_cache::ReadyPosition;
use crate::read_set::ReadSet;
use crate::row::{IndexColumns, JobRow, Origin, number_of, remains_reclaimable};
use crate::working_set::{OriginalState, WorkingSet};

/// Counts of one queue: one per state, then the held jobs.
const COUNTS: usize = StateKind::COUNT + 1;

/// Changes of job counts, per queue.
#[derive(Default)]
pub(super) struct CountDeltas(BTreeMap<i32, [i64; COUNTS]>);

impl CountDeltas {
    pub(super) fn add(&mut self, queue_id: i32, state: StateKind, held: bool, delta: i64) {
        let counts = self.0.entry(queue_id).or_insert([0; COUNTS]);
        if let Some(count) = counts.get_mut(state as usize) {
            *count += delta;
        }
        if held && let Some(count) = counts.last_mut() {
            *count += delta;
        }
    }

    pub(super) fn add_all(&mut self, queue_id: i32, deltas: &[i64]) {
        let counts = self.0.entry(queue_id).or_insert([0; COUNTS]);
        counts.iter_mut().zip(deltas).for_each(|(count, delta)| *count += delta);
    }

    pub(super) fn into_changed(self) -> impl Iterator<Item = (i32, [i64; COUNTS])> {
        self.0.into_iter().filter(|(_, counts)| counts.iter().any(|delta| *delta != 0))
    }

    /// Values of the parameters `counted` and `deltas`.
    pub(super) fn into_values(self) -> [SqlValue; 2] {
        let changed: Vec<_> = self.into_changed().collect();
        let queue_ids: Vec<i32> = changed.iter().map(|(queue_id, _)| *queue_id).collect();
        let deltas: Vec<i64> = changed.into_iter().flat_map(|(_, counts)| counts).collect();
        [Box::new(queue_ids), Box::new(deltas)]
    }
}

/// The rows that a transaction writes.
#[derive(Default)]
pub(super) struct RowChanges {
    pub inserted: JobColumns,
    pub updated: JobColumns,
    pub heartbeats: JobColumns,
    pub claimed: JobColumns,
    pub finished: JobColumns,
    pub restored: Vec<i64>,
    pub summary: CommitSummary,
}

impl RowChanges {
    pub(super) fn is_empty(&self) -> bool {
        let Self { inserted, updated, heartbeats, claimed, finished, restored, summary: _ } = self;
        restored.is_empty() && [inserted, updated, heartbeats, claimed, finished].iter().all(|rows| rows.seq.is_empty())
    }
}

/// What is known of a transaction besides its rows.
#[derive(Default)]
pub(super) struct CommitSummary {
    pub counts: CountDeltas,
    /// The earliest timer among the written rows.
    pub deadline: Option<i64>,
    /// Some of the jobs can be archived.
    pub archivable: bool,
}

impl CommitSummary {
    fn count(&mut self, queue_id: i32, job: &Job, original: Option<&OriginalState>) {
        if let Some(original) = original {
            self.counts.add(queue_id, original.state, original.held, -1);
        }
        self.counts.add(queue_id, job.kind(), job.state.held(), 1);
    }

    fn add_columns(&mut self, columns: &IndexColumns) {
        let due = columns.due.map(|(at, _)| at);
        self.deadline = self.deadline.into_iter().chain(due).min();
        self.archivable |= columns.archivable;
    }
}

impl Transaction<'_> {
    pub(super) fn classify(
        &self,
        evaluation: &Evaluation<'_>,
        catalog: &Catalog,
        read_set: &ReadSet,
    ) -> Result<RowChanges, TxError> {
        let working_set = &evaluation.working_set;
        let mut changes = RowChanges::default();
        let cursor_moved = |(seq, row): (&Seq, &JobRow)| {
            (propagation_cursor(evaluation, *seq) != row.propagation_cursor).then_some(*seq)
        };
        let mut changed = working_set.changed.clone();
        let stored = read_set.rows.iter().filter(|(seq, _)| working_set.job(**seq).is_some());
        changed.extend(stored.filter_map(cursor_moved));
        for seq in &changed {
            let Some(job) = working_set.job(*seq) else { continue };
            let (row, cursor) = (read_set.rows.get(seq), propagation_cursor(evaluation, *seq));
            let reclaimable = evaluation.engine.is_reclaimable(job)
                || row.is_some_and(|row| row.is_reclaimable() && remains_reclaimable(job, self.now));
            let columns = IndexColumns::of(job, ordering(job, reclaimable));
            let record = codec::job::encode_unpadded(job, &catalog.names).ok_or(TxError::NotStorable)?;
            let queue_id = catalog.queue_id(&job.queue).ok_or(TxError::NotStorable)?;
            changes.summary.count(queue_id, job, working_set.before.get(seq));
            changes.summary.add_columns(&columns);
            let rows = match row {
                None => &mut changes.inserted,
                Some(row) if row.origin == Origin::Archive => {
                    changes.restored.push(seq.0.cast_signed());
                    changes.inserted.push((*seq, queue_id), &columns, cursor, record, None);
                    continue;
                }
                Some(row) if is_heartbeat(job, row, &columns) && has_same_terms(working_set, job) => {
                    &mut changes.heartbeats
                }
                Some(row) if is_claim(row, &columns) => &mut changes.claimed,
                Some(row) if is_finish(row, &columns) && cursor.is_none() => &mut changes.finished,
                Some(_) => &mut changes.updated,
            };
            rows.push((*seq, queue_id), &columns, cursor, record, row);
        }
        self.fix_stale_timers(evaluation, catalog, read_set, &mut changes.updated)?;
        Ok(changes)
    }

    /// Corrects `due_at` of rows that a tick has found too early: heartbeats have moved their
    /// timers.
    fn fix_stale_timers(
        &self,
        evaluation: &Evaluation<'_>,
        catalog: &Catalog,
        read_set: &ReadSet,
        updated: &mut JobColumns,
    ) -> Result<(), TxError> {
        for (seq, row) in &read_set.rows {
            let (Some(job), Some((due_at, _))) = (evaluation.working_set.job(*seq), row.due) else { continue };
            let unchanged = row.origin == Origin::Jobs
                && !evaluation.working_set.changed.contains(seq)
                && propagation_cursor(evaluation, *seq) == row.propagation_cursor;
            if !unchanged || due_at > self.now.as_millis() {
                continue;
            }
            let reclaimable = row.is_reclaimable() && remains_reclaimable(job, self.now);
            let columns = IndexColumns::of(job, ordering(job, reclaimable));
            if columns.due != row.due {
                let queue_id = catalog.queue_id(&job.queue).ok_or(TxError::NotStorable)?;
                updated.push((*seq, queue_id), &columns, row.propagation_cursor, row.record.clone(), Some(row));
            }
        }
        Ok(())
    }
}

/// Position of the first job of a queue that the transaction has read.
pub(super) fn first_position(
    evaluation: &Evaluation<'_>,
    read_set: &ReadSet,
    queue: &QueueName,
) -> Option<ReadyPosition> {
    let position = |(seq, row): (&Seq, &JobRow)| {
        let job = evaluation.working_set.job(*seq).filter(|job| job.queue == *queue)?;
        Some((i16::from(job.effective_priority().level()), row.ready_position?))
    };
    read_set.rows.iter().filter_map(position).min()
}

/// Last dependent that the completion of a job has been propagated to, while that is in progress.
fn propagation_cursor(evaluation: &Evaluation<'_>, seq: Seq) -> Option<i64> {
    evaluation.engine.propagation_cursor(seq).map(|cursor| cursor.0.cast_signed())
}

/// Whether the job keeps running under the same lease, and no index column has to change. A timer
/// that has moved to a later time may stay as it is.
fn is_heartbeat(job: &Job, row: &JobRow, columns: &IndexColumns) -> bool {
    let running = number_of(StateKind::Running);
    let same_lease = row.state == running && columns.state == running && row.lease_version == columns.lease_version;
    let not_earlier = match (row.due, columns.due) {
        (Some(stored), Some(due)) => stored.0 <= due.0,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    same_lease
        && not_earlier
        && row.ready_position.is_none()
        && columns.ready_position.is_none()
        && job.pending_propagation == PendingPropagation::Nothing
}

fn is_claim(row: &JobRow, columns: &IndexColumns) -> bool {
    row.state == number_of(StateKind::Scheduled) && columns.state == number_of(StateKind::Running)
}

fn is_finish(row: &JobRow, columns: &IndexColumns) -> bool {
    row.state == number_of(StateKind::Running) && columns.ended_at.is_some() && columns.due.is_none()
}

fn has_same_terms(working_set: &WorkingSet<'_>, job: &Job) -> bool {
    working_set.before.get(&job.seq).is_some_and(|original| original.indexed.are_those_of(job))
}
