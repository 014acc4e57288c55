//! Jobs of a slice: what the operation has seen of them, whether it has changed them already, and
//! how a change is taken back.

use super::OperationAction;
use crate::history::Cause;
use crate::id::{JobId, LeaseVersion, Seq};
use crate::job::Job;
use crate::limits::HISTORY_MAX;
use crate::requeue::{EndedJob, Requeue, Reset, Reversal};
use crate::state::StateKind;
use crate::time::Timestamp;

/// A job that a slice is to change, as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedJob {
    pub seq: Seq,
    pub id: JobId,
    pub state: StateKind,
    pub updated_at: Timestamp,
    pub lease_version: LeaseVersion,
    /// Length of its history.
    pub transitions: usize,
    pub held: bool,
    pub cancel_requested: bool,
    pub was_cloned: bool,
    pub run_at: Option<Timestamp>,
    /// How it had ended, if the action can be taken back.
    pub ended: Option<EndedJob>,
}

/// A job that a slice has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreatedJob {
    pub planned: PlannedJob,
    /// Its clone.
    pub clone: Option<JobId>,
}

impl TreatedJob {
    /// Returns the job that runs.
    pub fn runs(&self) -> JobId {
        self.clone.unwrap_or(self.planned.id)
    }
}

impl PlannedJob {
    pub fn of(job: &Job, action: OperationAction) -> Self {
        Self {
            seq: job.seq,
            id: job.id,
            state: job.kind(),
            updated_at: job.updated_at,
            lease_version: job.lease_version,
            transitions: job.history.transitions().len(),
            held: job.state.held(),
            cancel_requested: is_cancel_requested(job),
            was_cloned: job.requeued_as.is_some(),
            run_at: job.state.run_at(),
            ended: EndedJob::of(job).filter(|_| action == OperationAction::Requeue),
        }
    }

    /// Whether the operation has changed the job since it was planned. `job`: as it is now.
    ///
    /// The history of the job decides. A full history has lost old entries: then the times do.
    pub fn is_changed(&self, action: OperationAction, job: Option<&Job>) -> bool {
        let Some(job) = job else { return action == OperationAction::Delete };
        let transitions = job.history.transitions();
        let new = if self.transitions < HISTORY_MAX { self.transitions } else { 1 };
        let is_new_enough = |at: Timestamp| self.transitions < HISTORY_MAX || at > self.updated_at;
        let has = |cause: Cause| {
            let new = transitions.get(new..).unwrap_or_default();
            new.iter().any(|step| step.cause == cause && is_new_enough(step.at))
        };
        match action {
            OperationAction::Requeue => has(Cause::Requeue) || (job.requeued_as.is_some() && !self.was_cloned),
            OperationAction::Cancel => has(Cause::Cancel) || (is_cancel_requested(job) && !self.cancel_requested),
            OperationAction::RunNow => has(Cause::RunNow),
            OperationAction::Delete => false,
        }
    }
}

fn is_cancel_requested(job: &Job) -> bool {
    job.state.lease().is_some_and(|lease| lease.cancel_requested.is_some())
}

/// How one change is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoStep {
    Requeue(JobId, Requeue),
    Reversal(JobId, Reversal),
    /// It was taken back already.
    Undone,
    /// The job has run since, or cannot be restored.
    Keep,
}

/// Returns how the change of a job is taken back. `job`: the job that runs, as it is now.
/// `undo_at`: when the undo was requested.
pub fn undo_step(action: OperationAction, treated: &TreatedJob, job: Option<&Job>, undo_at: Timestamp) -> UndoStep {
    let Some(job) = job else { return UndoStep::Keep };
    let moved_since = job.updated_at >= undo_at;
    let planned = &treated.planned;
    match action {
        OperationAction::Cancel => {
            if job.lease_version != planned.lease_version {
                return UndoStep::Keep;
            }
            match job.kind() {
                StateKind::Cancelled if job.requeued_as.is_some() && !planned.was_cloned => UndoStep::Undone,
                // A requeue would submit a held job.
                StateKind::Cancelled if planned.held => UndoStep::Keep,
                StateKind::Cancelled => {
                    let how = Requeue { counters: Reset::Keep, run_at: planned.run_at };
                    UndoStep::Requeue(job.id, how)
                }
                StateKind::Pending | StateKind::Scheduled | StateKind::Delayed if moved_since => UndoStep::Undone,
                StateKind::Pending
                | StateKind::Scheduled
                | StateKind::Delayed
                | StateKind::Running
                | StateKind::Retrying
                | StateKind::Completed
                | StateKind::Failed
                | StateKind::DeadLetter => UndoStep::Keep,
            }
        }
        OperationAction::Requeue => {
            let how = match (&treated.clone, &planned.ended) {
                (Some(_), _) => Reversal::Clone,
                (None, Some(ended)) => Reversal::InPlace(ended.clone()),
                (None, None) => return UndoStep::Keep,
            };
            let version = if treated.clone.is_some() { LeaseVersion::default() } else { planned.lease_version };
            match (job.lease_version == version, job.state.terminal()) {
                (true, false) => UndoStep::Reversal(job.id, how),
                (true, true) if moved_since => UndoStep::Undone,
                (true | false, _) => UndoStep::Keep,
            }
        }
        OperationAction::Delete | OperationAction::RunNow => UndoStep::Keep,
    }
}
