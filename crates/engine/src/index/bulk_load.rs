//! Taking in the live records of a store when it is opened: many, and mostly of a kind.

use super::{Index, QueueIndex};
use crate::engine::Engine;
use longshore_core::dependency::PendingPropagation;
use longshore_core::job::IndexedFields;
use longshore_core::state::{State, StateKind};

impl Engine {
    /// Takes in live records, in the course of a rebuild. Jobs that differ in nothing but their places are filed together where they follow each other.
    pub fn bulk_load(&mut self, jobs: &[IndexedFields<'_>]) {
        for run in jobs.chunk_by(same_slot) {
            match run.first() {
                Some(first) if place(first).is_some() => {
                    let last = self.index.insert_run(first, run);
                    self.next_number = self.next_number.max(last.saturating_add(1));
                }
                Some(_) | None => run.iter().for_each(|job| self.index_job(job)),
            }
        }
    }
}

impl Index {
    /// The same as to insert each of them; says the last number among their own and their places'.
    fn insert_run(&mut self, first: &IndexedFields<'_>, run: &[IndexedFields<'_>]) -> u64 {
        let line = self.line(first.queue);
        *line.count(StateKind::Scheduled) += run.len() as u64;
        for together in run.chunk_by(|a, b| a.scheduled_at == b.scheduled_at) {
            line.arrive(together);
        }
        let level = line.level(first.effective_priority);
        let line = level.by_type.entry(first.job_type.clone()).or_default();
        if let Some((head, _)) = line.first() {
            level.heads.remove(&head);
        }
        let places = || run.iter().filter_map(|job| Some((place(job)?, job.seq)));
        places().for_each(|(position, seq)| line.insert(position, seq));
        level.heads.extend(line.first().map(|(head, _)| (head, first.job_type.clone())));
        places().map(|(position, seq)| position.max(seq.0)).max().unwrap_or(0)
    }
}

impl QueueIndex {
    fn arrive(&mut self, together: &[IndexedFields<'_>]) {
        if let Some(at) = together.first().and_then(|job| job.scheduled_at) {
            *self.enqueued_at_counts.entry(at).or_default() += together.len() as u64;
        }
    }
}

/// Where a job stands that waits in line and for nothing else.
fn place(job: &IndexedFields<'_>) -> Option<u64> {
    match job.state {
        State::Scheduled { position }
            if job.lifetime_ends_at.is_none() && job.pending_propagation == PendingPropagation::Nothing =>
        {
            Some(*position)
        }
        State::Scheduled { .. }
        | State::Pending { .. }
        | State::Delayed { .. }
        | State::Running(_)
        | State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => None,
    }
}

fn same_slot(a: &IndexedFields<'_>, b: &IndexedFields<'_>) -> bool {
    place(a).is_some()
        && place(b).is_some()
        && a.effective_priority == b.effective_priority
        && a.queue == b.queue
        && a.job_type == b.job_type
}
