//! The six status values of Ocypod, and the transitions that its clients may request.

use bytes::Bytes;

use crate::attempt::AttemptOutcome;
use crate::cancel;
use crate::context::TransitionContext;
use crate::failure::{Category, Failure, ReportedCategory, ReportedFailure};
use crate::history::Cause;
use crate::job::Job;
use crate::lease;
use crate::profile::Profile;
use crate::queue_context::QueueContext;
use crate::refusal::Refusal;
use crate::retry::{AttemptFailure, RetryEligibility, fail_attempt};
use crate::settle::{self, Outcome, check_output_size};
use crate::state::{State, StateKind};
use crate::time::Timestamp;

/// The type of jobs that Ocypod clients submit.
pub const OCYPOD_TYPE: &str = "ocypod";

longshore_types::string_enum!(
    /// The state of a job in the words of Ocypod.
    Status {
        Queued = "queued",
        Running = "running",
        Failed = "failed",
        Completed = "completed",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
    }
);

impl Status {
    pub fn of(job: &Job) -> Self {
        let timed_out = job.error.as_ref().is_some_and(|error| error.category == Category::Timeout);
        match job.kind() {
            StateKind::Pending | StateKind::Scheduled | StateKind::Delayed => Self::Queued,
            StateKind::Running => Self::Running,
            StateKind::Retrying | StateKind::Failed | StateKind::DeadLetter if timed_out => Self::TimedOut,
            StateKind::Retrying | StateKind::Failed | StateKind::DeadLetter => Self::Failed,
            StateKind::Completed => Self::Completed,
            StateKind::Cancelled => Self::Cancelled,
        }
    }

    /// Returns `TimedOut` for a job whose lease has expired, although no tick has processed it yet.
    fn effective_status(job: &Job, now: Timestamp) -> Self {
        match &job.state {
            State::Running(lease) if lease.expired(now) => Self::TimedOut,
            State::Running(_)
            | State::Pending { .. }
            | State::Scheduled { .. }
            | State::Delayed { .. }
            | State::Retrying { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::DeadLetter { .. }
            | State::Cancelled { .. } => Self::of(job),
        }
    }
}

/// A change of status, of output, or of both at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusChange {
    pub status: Option<Status>,
    /// Only while the job is running.
    pub output: Option<Bytes>,
}

/// The action that a change of status requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusAction {
    /// The status stays.
    Note,
    Complete,
    Fail,
    TimeOut,
    Cancel,
    Requeue,
}

/// Returns the action of a transition, for all 36 pairs. `None`: no client may request it.
fn step(from: Status, to: Status) -> Option<StatusAction> {
    match (from, to) {
        (Status::Running, Status::Completed) => Some(StatusAction::Complete),
        (Status::Running, Status::Failed) => Some(StatusAction::Fail),
        (Status::Running, Status::TimedOut) => Some(StatusAction::TimeOut),
        (Status::Queued | Status::Running | Status::Failed, Status::Cancelled) => Some(StatusAction::Cancel),
        (Status::Failed | Status::Cancelled | Status::TimedOut, Status::Queued) => Some(StatusAction::Requeue),
        (
            Status::Queued | Status::Failed | Status::Completed | Status::Cancelled | Status::TimedOut,
            Status::Completed | Status::Failed | Status::TimedOut,
        )
        | (Status::Completed | Status::Cancelled | Status::TimedOut, Status::Cancelled)
        | (Status::Queued | Status::Running | Status::Completed, Status::Queued)
        | (
            Status::Queued
            | Status::Running
            | Status::Failed
            | Status::Completed
            | Status::Cancelled
            | Status::TimedOut,
            Status::Running,
        ) => None,
    }
}

/// Returns the action that a change requires, or its refusal. The output is checked first.
pub fn check(job: &Job, change: &StatusChange, now: Timestamp) -> Result<StatusAction, Refusal> {
    if job.policy.profile != Profile::Ocypod {
        // Jobs of other profiles have other rules, which this dialect must not bypass.
        return Err(Refusal::JobNotFound);
    }
    let from = Status::effective_status(job, now);
    if change.output.is_some() && from != Status::Running {
        return Err(Refusal::Illegal("Can only set output for running jobs"));
    }
    match change.status {
        None => Ok(StatusAction::Note),
        Some(to) => step(from, to).ok_or(Refusal::StatusChange { from, to }),
    }
}

/// Applies an action that [`check`] returned. `requeue.rs` applies a requeue.
pub fn change(
    job: &mut Job,
    change: &StatusChange,
    step: StatusAction,
    queue_context: QueueContext<'_>,
    context: &mut TransitionContext<'_>,
) -> Result<StateKind, Refusal> {
    check_output_size("output", change.output.as_ref(), job, queue_context)?;
    // Output does not count as a heartbeat.
    if let Some(output) = &change.output {
        job.progress = Some(output.clone());
    }
    match step {
        StatusAction::Note | StatusAction::Requeue => {}
        StatusAction::Complete => {
            settle_with_current_lease(
                job,
                &Outcome::Complete { result: change.output.clone(), progress: None },
                queue_context,
                context,
            )?;
        }
        StatusAction::Fail => {
            let reported = ReportedFailure::new(ReportedCategory::Temporary, "reported as failed");
            settle_with_current_lease(job, &Outcome::Fail(reported), queue_context, context)?;
        }
        StatusAction::TimeOut => time_out(job, queue_context, context)?,
        StatusAction::Cancel => {
            // A manual cancel is final: the return of a dependency does not revive the job.
            job.dependencies.ended_by = None;
            cancel::end_cancelled(job, "", context);
        }
    }
    Ok(job.kind())
}

/// Settles with the token of the current lease, because the dialect has no tokens.
fn settle_with_current_lease(
    job: &mut Job,
    outcome: &Outcome,
    queue_context: QueueContext<'_>,
    context: &mut TransitionContext<'_>,
) -> Result<(), Refusal> {
    let token = job.state.lease().map(|lease| lease.token);
    settle::settle(job, token, outcome, queue_context, context).map(|_| ())
}

fn time_out(
    job: &mut Job,
    queue_context: QueueContext<'_>,
    context: &mut TransitionContext<'_>,
) -> Result<(), Refusal> {
    let token = job.state.lease().map(|lease| lease.token);
    if lease::check(job, token, context.now)?.cancel_requested.is_some() {
        cancel::finish_requested_cancel(job, context);
        return Ok(());
    }
    let failure = AttemptFailure {
        failure: Failure::detected(Category::Timeout, "timed_out", "reported as timed out", context.now),
        eligibility: RetryEligibility::ByCategory,
        retry_after: None,
        outcome: AttemptOutcome::TimedOut,
        cause: Cause::Timeout,
    };
    fail_attempt(job, failure, queue_context, context);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the Ocypod dialect, as its specification prints it.
    #[test]
    fn all_36_pairs() {
        use Status::*;
        let columns = [Queued, Running, Failed, Completed, Cancelled, TimedOut];
        let table = [
            (Queued, [0, 0, 0, 0, 1, 0]),
            (Running, [0, 0, 1, 1, 1, 1]),
            (Failed, [1, 0, 0, 0, 1, 0]),
            (Completed, [0, 0, 0, 0, 0, 0]),
            (Cancelled, [1, 0, 0, 0, 0, 0]),
            (TimedOut, [1, 0, 0, 0, 0, 0]),
        ];
        for (from, row) in table {
            for (to, allowed) in columns.into_iter().zip(row) {
                assert_eq!(step(from, to).is_some(), allowed == 1, "{from} to {to}");
            }
        }
    }
}
