//! The ways into the line: submission, dependencies met, a due time, or an operator's impatience.

use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::job::{Job, Moment};
use crate::refusal::Refusal;
use crate::state::{Ending, State, StateKind};
use crate::time::Timestamp;

/// Out of pending, if nothing holds it there any more.
pub(crate) fn leave_pending_when_free(job: &mut Job, cause: Cause, moment: &mut Moment<'_>) {
    match job.state {
        State::Pending { held: false, run_at } if job.dependencies.met() => match ahead(run_at, moment.now) {
            Some(until) => job.enter(State::Delayed { until }, cause, moment),
            None => job.enter_line(cause, moment),
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

pub(crate) fn ahead(run_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    run_at.filter(|at| *at > now)
}

/// Submits a held job. `full`: the queue takes no more, told only where the profile fails the job for it.
pub fn submit_held(job: &mut Job, full: bool, moment: &mut Moment<'_>) -> Result<StateKind, Refusal> {
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
    leave_pending_when_free(job, Cause::Submit, moment);
    if full {
        fail_for_room(job, moment);
    }
    Ok(job.kind())
}

/// A full queue fails whoever has just come into its line; one that still waits for something else is not in it yet.
pub(crate) fn fail_for_room(job: &mut Job, moment: &mut Moment<'_>) {
    match job.kind() {
        StateKind::Scheduled => {
            let failure = Failure::found(Category::System, "resource_exhausted", "the queue is full", moment.now);
            job.end_by_decree(Ending::Failed, failure, Cause::ResourceExhausted, moment);
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
pub fn promote(job: &mut Job, moment: &mut Moment<'_>) -> bool {
    match job.state {
        State::Delayed { until } if until <= moment.now => job.enter_line(Cause::Due, moment),
        State::Retrying { until } if until <= moment.now => {
            job.counters.requeues += 1;
            job.enter_line(Cause::Due, moment);
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
pub fn run_now(job: &mut Job, moment: &mut Moment<'_>) -> Result<StateKind, Refusal> {
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
    job.enter_line(Cause::RunNow, moment);
    Ok(job.kind())
}
