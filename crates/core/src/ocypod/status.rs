//! A job in the six words of Ocypod, and the moves between them that its clients may ask for.

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

/// The type of jobs that came in by the dialect.
pub const OCYPOD_TYPE: &str = "ocypod";

longshore_types::string_enum!(
    /// What an Ocypod client calls the state of a job.
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

    /// A run whose time is over has timed out, although no tick has noticed it yet.
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

/// What a change of status comes down to.
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

/// The 36 pairs. `None` is a move that nobody may ask for.
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

/// Says what a change comes down to, or why it is refused. The output is looked at first.
pub fn check(job: &Job, change: &StatusChange, now: Timestamp) -> Result<StatusAction, Refusal> {
    if job.policy.profile != Profile::Ocypod {
        // Other jobs have other rules, and nobody gets around them here.
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

/// Does it, unless it is a requeue: that one has a file of its own. Only after [`check`].
pub fn change(
    job: &mut Job,
    change: &StatusChange,
    step: StatusAction,
    home: QueueContext<'_>,
    moment: &mut TransitionContext<'_>,
) -> Result<StateKind, Refusal> {
    check_output_size("output", change.output.as_ref(), job, home)?;
    // Not a heartbeat: a worker that only writes is not thereby heard of.
    if let Some(output) = &change.output {
        job.progress = Some(output.clone());
    }
    match step {
        StatusAction::Note | StatusAction::Requeue => {}
        StatusAction::Complete => {
            settle_with_current_lease(
                job,
                &Outcome::Complete { result: change.output.clone(), progress: None },
                home,
                moment,
            )?;
        }
        StatusAction::Fail => {
            let reported = ReportedFailure::new(ReportedCategory::Temporary, "reported as failed");
            settle_with_current_lease(job, &Outcome::Fail(reported), home, moment)?;
        }
        StatusAction::TimeOut => time_out(job, home, moment)?,
        StatusAction::Cancel => {
            // Whoever was cancelled by hand does not come back by itself.
            job.dependencies.ended_by = None;
            cancel::end_cancelled(job, "", moment);
        }
    }
    Ok(job.kind())
}

/// The dialect has no tokens: whoever speaks, speaks for the present lease.
fn settle_with_current_lease(
    job: &mut Job,
    outcome: &Outcome,
    home: QueueContext<'_>,
    moment: &mut TransitionContext<'_>,
) -> Result<(), Refusal> {
    let token = job.state.lease().map(|lease| lease.token);
    settle::settle(job, token, outcome, home, moment).map(|_| ())
}

fn time_out(job: &mut Job, home: QueueContext<'_>, moment: &mut TransitionContext<'_>) -> Result<(), Refusal> {
    let token = job.state.lease().map(|lease| lease.token);
    if lease::check(job, token, moment.now)?.cancel_requested.is_some() {
        cancel::finish_requested_cancel(job, moment);
        return Ok(());
    }
    let trouble = AttemptFailure {
        failure: Failure::detected(Category::Timeout, "timed_out", "reported as timed out", moment.now),
        eligibility: RetryEligibility::ByCategory,
        retry_after: None,
        outcome: AttemptOutcome::TimedOut,
        cause: Cause::Timeout,
    };
    fail_attempt(job, trouble, home, moment);
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
