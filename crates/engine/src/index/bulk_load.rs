//! The bulk load: indexes the live records of a store when it is opened.

use super::{Index, QueueIndex};
use crate::engine::Engine;
use longshore_core::dependency::PendingPropagation;
use longshore_core::job::IndexedFields;
use longshore_core::state::{State, StateKind};

impl Engine {
    /// Indexes live records during a rebuild.
    /// Consecutive ready jobs of the same queue, priority and type are inserted as one run.
    pub fn bulk_load(&mut self, jobs: &[IndexedFields<'_>]) {
        for run in jobs.chunk_by(same_slot) {
            match run.first() {
                Some(first) if ready_position(first).is_some() => {
                    let last = self.index.insert_run(first, run);
                    self.next_seq = self.next_seq.max(last.saturating_add(1));
                }
                Some(_) | None => run.iter().for_each(|job| self.index_job(job)),
            }
        }
    }
}

impl Index {
    /// Inserts jobs that differ only in their positions. Returns the greatest of their numbers and
    /// positions.
    fn insert_run(&mut self, first: &IndexedFields<'_>, run: &[IndexedFields<'_>]) -> u64 {
        let queue = self.queue_index(first.queue);
        *queue.count(StateKind::Scheduled) += run.len() as u64;
        for group in run.chunk_by(|a, b| a.scheduled_at == b.scheduled_at) {
            queue.count_enqueued(group);
        }
        let level = queue.level(first.effective_priority);
        let list = level.by_type.entry(first.job_type.clone()).or_default();
        if let Some((head, _)) = list.first() {
            level.heads.remove(&head);
        }
        let positions = || run.iter().filter_map(|job| Some((ready_position(job)?, job.seq)));
        positions().for_each(|(position, seq)| list.insert(position, seq));
        level.heads.extend(list.first().map(|(head, _)| (head, first.job_type.clone())));
        positions().map(|(position, seq)| position.max(seq.0)).max().unwrap_or(0)
    }
}

impl QueueIndex {
    fn count_enqueued(&mut self, group: &[IndexedFields<'_>]) {
        if let Some(at) = group.first().and_then(|job| job.scheduled_at) {
            *self.enqueued_at_counts.entry(at).or_default() += group.len() as u64;
        }
    }
}

/// Returns the position of a job whose only index entry is its position: no timer, no propagation.
fn ready_position(job: &IndexedFields<'_>) -> Option<u64> {
    let State::Scheduled { position } = job.state else { return None };
    let is_plain = job.lifetime_ends_at.is_none() && job.pending_propagation == PendingPropagation::Nothing;
    is_plain.then_some(*position)
}

fn same_slot(a: &IndexedFields<'_>, b: &IndexedFields<'_>) -> bool {
    ready_position(a).is_some()
        && ready_position(b).is_some()
        && a.effective_priority == b.effective_priority
        && a.queue == b.queue
        && a.job_type == b.job_type
}
