//! Totals of the jobs of the Ocypod dialect since the store was created, counted from transitions.

use crate::history::{Cause, Transition};
use crate::id::JobType;
use crate::ocypod::status::OCYPOD_TYPE;
use crate::state::StateKind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub created: u64,
    pub completed: u64,
    /// Ready again after a retry or a requeue.
    pub retried: u64,
    pub failed: u64,
    pub timed_out: u64,
    pub cancelled: u64,
}

impl Totals {
    /// Counts the transitions of jobs that Ocypod clients submitted; other types are ignored.
    pub fn count<'a>(&mut self, transitions: impl IntoIterator<Item = (&'a JobType, &'a Transition)>) {
        for (job_type, transition) in transitions {
            if job_type.as_str() == OCYPOD_TYPE {
                self.count_step(transition);
            }
        }
    }

    fn count_step(&mut self, step: &Transition) {
        let from_running = step.from == Some(StateKind::Running);
        let counter = match (step.to, step.cause) {
            (StateKind::Pending, Cause::Create) => &mut self.created,
            (StateKind::Completed, _) => &mut self.completed,
            // A deleted queue ends its jobs; no client cancelled them.
            (StateKind::Cancelled, cause) if cause != Cause::QueueDeleted => &mut self.cancelled,
            (StateKind::Retrying | StateKind::Failed | StateKind::DeadLetter, Cause::Timeout | Cause::LeaseExpired)
                if from_running =>
            {
                &mut self.timed_out
            }
            (StateKind::Retrying | StateKind::Failed | StateKind::DeadLetter, _) if from_running => &mut self.failed,
            (StateKind::Scheduled, Cause::Requeue) => &mut self.retried,
            (StateKind::Scheduled, _) if step.from == Some(StateKind::Retrying) => &mut self.retried,
            (
                StateKind::Pending
                | StateKind::Scheduled
                | StateKind::Delayed
                | StateKind::Running
                | StateKind::Retrying
                | StateKind::Failed
                | StateKind::DeadLetter
                | StateKind::Cancelled,
                _,
            ) => return,
        };
        *counter = counter.saturating_add(1);
    }
}
