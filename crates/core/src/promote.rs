//! The ways into the line: submission, dependencies met, a due time, or an operator's impatience.

use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::job::{Job, TransitionContext};
use crate::refusal::Refusal;
use crate::state::{State, StateKind, TerminalState};
use crate::time::Timestamp;

/// Out of pending, if nothing holds it there any more.
pub fn schedule_if_unblocked(job: &mut Job, cause: Cause, moment: &mut TransitionContext<'_>) {
    match job.state {
        State::Pending { held: false, run_at } if job.dependencies.met() => match if_in_future(run_at, moment.now) {
            Some(until) => job.transition_to(State::Delayed { until }, cause, moment),
            None => job.make_ready(cause, moment),
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

pub(crate) fn if_in_future(run_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    run_at.filter(|at| *at > now)
}

/// Submits a held job. `full`: the queue takes no more, told only where the profile fails the job for it.
pub fn submit_held(job: &mut Job, full: bool, moment: &mut TransitionContext<'_>) -> Result<StateKind, Refusal> {
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
    schedule_if_unblocked(job, Cause::Submit, moment);
    if full {
        fail_queue_full(job, moment);
    }
    Ok(job.kind())
}

/// A full queue fails whoever has just come into its line; one that still waits for something else is not in it yet.
pub(crate) fn fail_queue_full(job: &mut Job, moment: &mut TransitionContext<'_>) {
    match job.kind() {
        StateKind::Scheduled => {
            let failure = Failure::detected(Category::System, "resource_exhausted", "the queue is full", moment.now);
            job.terminate(TerminalState::Failed, failure, Cause::ResourceExhausted, moment);
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

/// A delay or a backoff is over. Says whether it moved: too early, or already gone, is no error of the clock's.
pub fn promote(job: &mut Job, moment: &mut TransitionContext<'_>) -> bool {
    match job.state {
        State::Delayed { until } if until <= moment.now => job.make_ready(Cause::Due, moment),
        State::Retrying { until } if until <= moment.now => {
            job.counters.requeues += 1;
            job.make_ready(Cause::Due, moment);
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

/// An operator does not want to wait for the due time.
pub fn run_now(job: &mut Job, moment: &mut TransitionContext<'_>) -> Result<StateKind, Refusal> {
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
    job.make_ready(Cause::RunNow, moment);
    Ok(job.kind())
}
