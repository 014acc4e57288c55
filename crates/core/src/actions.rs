//! Actions: which commands of operators the state of a job allows now.
//!
//! Each rule repeats the check of its verb without the change. The transition table of the testkit
//! compares both for every state and profile.

pub use longshore_types::JobAction;

use crate::dependency::{DependencyStatus, recompute};
use crate::id::JobId;
use crate::job::Job;
use crate::policy::{AdmissionSettings, CancelRunning, ManualRequeue};
use crate::requeue::{self, Requeue, Reset};
use crate::state::{State, StateKind};

/// Returns the actions that succeed now, in the order of [`JobAction::ALL`].
///
/// `admission` is of the job's queue, if that exists. `status` is called for dependencies only if
/// [`depends_on_dependencies`]. A full queue may refuse to submit a held job: counts are no part
/// of a job's state.
pub fn allowed_actions(
    job: &Job,
    admission: Option<&AdmissionSettings>,
    status: impl Fn(JobId) -> DependencyStatus,
) -> Vec<JobAction> {
    let is_allowed = |action: &JobAction| match action {
        JobAction::Submit => job.state.held(),
        JobAction::Cancel => !job.state.terminal(),
        JobAction::ForceCancel => can_force_cancel(job),
        JobAction::RunNow => can_run_now(job),
        JobAction::Requeue => can_requeue(job, admission, &status),
        JobAction::DeadLetter => !job.state.terminal() && !job.policy.profile.strict(),
        JobAction::Delete => !job.is_live() && job.unfinished_dependents == 0,
        JobAction::Edit => !job.state.terminal(),
    };
    JobAction::ALL.iter().copied().filter(is_allowed).collect()
}

/// Whether a requeue depends on the present states of the job's dependencies.
pub fn depends_on_dependencies(job: &Job) -> bool {
    match job.policy.manual_requeue {
        ManualRequeue::InPlace => job.state.terminal() && job.dependencies.after.iter().any(|after| !after.met),
        ManualRequeue::Clone => false,
    }
}

/// A cancel without force would only ask the worker.
fn can_force_cancel(job: &Job) -> bool {
    match &job.state {
        State::Running(_) => job.policy.cancel_running == CancelRunning::Cooperative,
        State::Pending { .. }
        | State::Scheduled { .. }
        | State::Delayed { .. }
        | State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => false,
    }
}

fn can_run_now(job: &Job) -> bool {
    match job.kind() {
        StateKind::Delayed | StateKind::Retrying => !job.policy.profile.strict(),
        StateKind::Pending
        | StateKind::Scheduled
        | StateKind::Running
        | StateKind::Completed
        | StateKind::Failed
        | StateKind::DeadLetter
        | StateKind::Cancelled => false,
    }
}

fn can_requeue(job: &Job, admission: Option<&AdmissionSettings>, status: &impl Fn(JobId) -> DependencyStatus) -> bool {
    let with_reset = Requeue { counters: Reset::Zero, run_at: None };
    if requeue::check(job, &with_reset, admission).is_err() {
        return false;
    }
    !depends_on_dependencies(job) || recompute(&mut job.dependencies.clone(), status).is_none()
}
