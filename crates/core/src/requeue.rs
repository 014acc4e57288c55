//! Requeue: runs an ended job again, in place or as a clone, as its policy says.

use std::sync::Arc;

use crate::cancel::end_cancelled;
use crate::context::TransitionContext;
use crate::dependency::{Dependencies, DependencyStatus, PendingPropagation, recompute};
use crate::failure::Failure;
use crate::history::Cause;
use crate::id::{JobId, LeaseVersion, Seq};
use crate::job::{Counters, Job};
use crate::policy::{AdmissionSettings, ManualRequeue};
use crate::promote::{if_in_future, schedule_if_unblocked};
use crate::refusal::Refusal;
use crate::state::{State, StateKind, TerminalState};
use crate::submit::new_pending;
use crate::time::Timestamp;

/// Options of a requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requeue {
    pub counters: Reset,
    pub run_at: Option<Timestamp>,
}

/// What happens to the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// All counters are set to zero and the checkpoint is removed. The lease version is kept.
    Zero,
    Keep,
}

/// Returns how the job is requeued, or why it cannot be. `admission`: of its queue, if that exists.
pub fn check(job: &Job, requeue: &Requeue, admission: Option<&AdmissionSettings>) -> Result<ManualRequeue, Refusal> {
    match job.kind() {
        StateKind::Failed | StateKind::DeadLetter | StateKind::Cancelled => {}
        StateKind::Pending
        | StateKind::Scheduled
        | StateKind::Delayed
        | StateKind::Running
        | StateKind::Retrying
        | StateKind::Completed => return Err(Refusal::IllegalTransition { from: job.kind(), verb: "requeued" }),
    }
    if job.requeued_as.is_some() {
        return Err(Refusal::Illegal("the job was already requeued: see \"requeued_as\""));
    }
    let admission = admission.ok_or(Refusal::QueueNotFound)?;
    if requeue.run_at.is_some() && !admission.delayed_start {
        return Err(Refusal::invalid("run_at", "is not taken by this queue: it has no delayed start"));
    }
    Ok(job.policy.manual_requeue)
}

/// Runs the same job again; call [`check`] before. The job then waits for `dependencies`: its own,
/// or their successors.
pub fn in_place(
    job: &mut Job,
    requeue: &Requeue,
    mut dependencies: Dependencies,
    status: impl Fn(JobId) -> DependencyStatus,
    context: &mut TransitionContext<'_>,
) -> Result<(), Refusal> {
    if recompute(&mut dependencies, &status).is_some() {
        let is_gone =
            dependencies.ended_by.is_some_and(|ended_by| status(ended_by.dependency) == DependencyStatus::Gone);
        return Err(Refusal::Illegal(if is_gone {
            "the dependency that ended it has been removed: submit a new job"
        } else {
            "a dependency has ended without success: requeue that job first"
        }));
    }
    dependencies.ended_by = None;
    job.dependencies = dependencies;
    if requeue.counters == Reset::Zero {
        job.counters = Counters::default();
        job.checkpoint = None;
    }
    job.error = None;
    job.last_settlement = None;
    job.pending_propagation = PendingPropagation::Return;
    job.restart_lifetime(context.now);
    let run_at = if_in_future(requeue.run_at, context.now);
    if !job.dependencies.met() {
        job.transition_to(State::Pending { held: false, run_at }, Cause::Requeue, context);
        return Ok(());
    }
    match run_at {
        Some(until) => job.transition_to(State::Delayed { until }, Cause::Requeue, context),
        None => job.make_ready(Cause::Requeue, context),
    }
    Ok(())
}

/// Makes a waiting retry ready by hand. The scheduled retry is not counted.
pub fn requeue_pending_retry(job: &mut Job, context: &mut TransitionContext<'_>) {
    job.counters.retries_scheduled = job.counters.retries_scheduled.saturating_sub(1);
    job.error = None;
    job.last_settlement = None;
    job.make_ready(Cause::Requeue, context);
}

/// Creates a new job with the same work, which waits for `dependencies`; call [`check`] before. The
/// clone replaces the original in its workflow.
pub fn clone(
    job: &mut Job,
    (id, seq): (JobId, Seq),
    requeue: &Requeue,
    dependencies: Dependencies,
    context: &mut TransitionContext<'_>,
) -> Job {
    let mut copy = new_pending(id, seq, job.queue.clone(), job.job_type.clone(), job.policy.clone(), context);
    copy.priority = job.priority;
    copy.tags = job.tags.clone();
    copy.correlation_id = job.correlation_id.clone();
    copy.callback_url = job.callback_url.clone();
    copy.traceparent = job.traceparent.clone();
    copy.membership = job.membership.clone();
    copy.requeued_from = Some(job.id);
    if dependencies.depth > 1 {
        copy.inherited_priority = job.inherited_priority;
    }
    copy.dependencies = dependencies;
    copy.state = State::Pending { held: false, run_at: if_in_future(requeue.run_at, context.now) };
    job.requeued_as = Some(id);
    job.last_settlement = None;
    match copy.state.run_at() {
        Some(_) => schedule_if_unblocked(&mut copy, Cause::Submit, context),
        None if !copy.dependencies.met() => {}
        None => copy.make_ready_at(seq.0, Cause::Submit, context),
    }
    copy
}

/// An ended job before its requeue: what [`take_back`] restores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedJob {
    pub ending: TerminalState,
    pub lease_version: LeaseVersion,
    pub counters: Counters,
    pub error: EndError,
}

/// The error of an ended job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndError {
    None,
    /// That of its last attempt, which a requeue keeps.
    OfLastAttempt,
    Given(Arc<Failure>),
}

impl EndedJob {
    /// Returns `None` for a job that has not ended.
    pub fn of(job: &Job) -> Option<Self> {
        let error = match &job.error {
            None => EndError::None,
            error if *error == last_attempt_error(job) => EndError::OfLastAttempt,
            Some(error) => EndError::Given(Arc::clone(error)),
        };
        let ending = TerminalState::of(job.kind())?;
        Some(Self { ending, lease_version: job.lease_version, counters: job.counters, error })
    }
}

fn last_attempt_error(job: &Job) -> Option<Arc<Failure>> {
    job.attempts.last()?.end.as_ref()?.error.clone()
}

/// How a requeue is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reversal {
    /// The job was requeued in place: it ends as it had ended.
    InPlace(EndedJob),
    /// The job is a clone: it is cancelled.
    Clone,
}

/// Takes a requeue back, unless the job has run since. The checkpoint that a reset has removed is
/// gone.
pub fn take_back(job: &mut Job, how: &Reversal, context: &mut TransitionContext<'_>) -> Result<StateKind, Refusal> {
    match job.kind() {
        StateKind::Pending | StateKind::Scheduled | StateKind::Delayed => {}
        StateKind::Running
        | StateKind::Retrying
        | StateKind::Completed
        | StateKind::Failed
        | StateKind::DeadLetter
        | StateKind::Cancelled => {
            return Err(Refusal::IllegalTransition { from: job.kind(), verb: "taken back" });
        }
    }
    let has_run = match how {
        Reversal::InPlace(ended) => job.lease_version != ended.lease_version,
        Reversal::Clone => job.lease_version != LeaseVersion::default(),
    };
    if has_run {
        return Err(Refusal::Illegal("the job has run since it was requeued"));
    }
    match how {
        Reversal::Clone => end_cancelled(job, "the requeue was taken back", context),
        Reversal::InPlace(ended) => {
            job.counters = ended.counters;
            job.error = match &ended.error {
                EndError::None => None,
                EndError::OfLastAttempt => last_attempt_error(job),
                EndError::Given(error) => Some(Arc::clone(error)),
            };
            let cause = match ended.ending {
                TerminalState::Completed | TerminalState::Failed => Cause::Fail,
                TerminalState::DeadLetter => Cause::DeadLetter,
                TerminalState::Cancelled => Cause::Cancel,
            };
            job.finish(ended.ending, cause, context);
        }
    }
    Ok(job.kind())
}
