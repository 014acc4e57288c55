//! How a waiting job becomes ready: submission, met dependencies, a due time, run-now.

use crate::context::TransitionContext;
use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::job::Job;
use crate::refusal::Refusal;
use crate::state::{State, StateKind, TerminalState};
use crate::time::Timestamp;

/// Moves a pending job on, unless it is held or waits for dependencies.
pub fn schedule_if_unblocked(job: &mut Job, cause: Cause, context: &mut TransitionContext<'_>) {
    match job.state {
        State::Pending { held: false, run_at } if job.dependencies.met() => match if_in_future(run_at, context.now) {
            Some(until) => job.transition_to(State::Delayed { until }, cause, context),
            None => job.make_ready(cause, context),
        },
        State::Pending { .. }
        | State::Scheduled { .. }
        | State::Delayed { .. }
        | State::Running(_)
        | State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => {}
    }
}

/// Returns a time only if it is in the future.
pub(crate) fn if_in_future(run_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    run_at.filter(|at| *at > now)
}

/// Submits a held job. `full`: the queue is full, and the profile fails the job in this case.
pub fn submit_held(job: &mut Job, full: bool, context: &mut TransitionContext<'_>) -> Result<StateKind, Refusal> {
    match &mut job.state {
        State::Pending { held, .. } if *held => *held = false,
        State::Pending { .. }
        | State::Scheduled { .. }
        | State::Delayed { .. }
        | State::Running(_)
        | State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => return Err(Refusal::IllegalTransition { from: job.kind(), verb: "submitted" }),
    }
    schedule_if_unblocked(job, Cause::Submit, context);
    if full {
        fail_queue_full(job, context);
    }
    Ok(job.kind())
}

/// Fails a job that became ready in a full queue. A job that still waits is not in the queue yet.
pub(crate) fn fail_queue_full(job: &mut Job, context: &mut TransitionContext<'_>) {
    match job.kind() {
        StateKind::Scheduled => {
            let failure = Failure::detected(Category::System, "resource_exhausted", "the queue is full", context.now);
            job.terminate(TerminalState::Failed, failure, Cause::ResourceExhausted, context);
        }
        StateKind::Pending
        | StateKind::Delayed
        | StateKind::Running
        | StateKind::Retrying
        | StateKind::Completed
        | StateKind::Failed
        | StateKind::DeadLetter
        | StateKind::Cancelled => {}
    }
}

/// Makes a job ready whose delay or backoff is over. Returns whether it was; an early or repeated
/// call changes nothing.
pub fn promote(job: &mut Job, context: &mut TransitionContext<'_>) -> bool {
    match job.state {
        State::Delayed { until } if until <= context.now => job.make_ready(Cause::Due, context),
        State::Retrying { until } if until <= context.now => {
            job.counters.requeues += 1;
            job.make_ready(Cause::Due, context);
        }
        State::Delayed { .. }
        | State::Retrying { .. }
        | State::Pending { .. }
        | State::Scheduled { .. }
        | State::Running(_)
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => return false,
    }
    true
}

/// Makes a delayed or retrying job ready now, by a command of an operator.
pub fn run_now(job: &mut Job, context: &mut TransitionContext<'_>) -> Result<StateKind, Refusal> {
    let refused = Refusal::IllegalTransition { from: job.kind(), verb: "run now" };
    if job.policy.profile.strict() {
        return Err(refused);
    }
    match job.state {
        State::Delayed { .. } => {}
        State::Retrying { .. } => job.counters.requeues += 1,
        State::Pending { .. }
        | State::Scheduled { .. }
        | State::Running(_)
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => return Err(refused),
    }
    job.make_ready(Cause::RunNow, context);
    Ok(job.kind())
}
