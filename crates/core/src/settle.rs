//! Settlement: a worker ends its lease by complete, fail, snooze or release.

use bytes::Bytes;

use crate::attempt::AttemptOutcome;
use crate::cancel;
use crate::context::TransitionContext;
use crate::failure::ReportedFailure;
use crate::history::Cause;
use crate::id::LeaseToken;
use crate::job::Job;
use crate::lease;
use crate::limits::check_duration;
use crate::policy::Settings;
use crate::queue_context::QueueContext;
use crate::refusal::{Invalid, Refusal};
use crate::retry::{AttemptFailure, RetryEligibility, fail_attempt};
use crate::state::{State, StateKind, TerminalState};
use crate::submit::check_size;
use crate::time::Duration;

pub use longshore_types::OutcomeKind;

/// How a lease ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Complete {
        result: Option<Bytes>,
        /// Last progress note. `None`: the note of the last heartbeat stays.
        progress: Option<Bytes>,
    },
    Fail(ReportedFailure),
    /// The job is ready again after a delay; the start is not counted.
    Snooze {
        delay: Duration,
    },
    /// The job is ready again at once; the start is not counted.
    Release,
    /// The server could not deliver the response to the claim. Workers cannot report this outcome.
    Undelivered,
}

impl Outcome {
    /// Returns the outcome without its data. Two settlements with one kind and token are the same.
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Complete { .. } => OutcomeKind::Complete,
            Self::Fail(_) => OutcomeKind::Fail,
            Self::Snooze { .. } => OutcomeKind::Snooze,
            Self::Release | Self::Undelivered => OutcomeKind::Release,
        }
    }

    /// Checks what does not depend on the job, before any lookup.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Complete { .. } | Self::Release | Self::Undelivered => Ok(()),
            Self::Fail(reported) => reported.check(),
            Self::Snooze { delay } => check_duration("delay", *delay),
        }
    }
}

/// Checks the size of a result, progress note or checkpoint: `payload_max` limits them too.
pub(crate) fn check_output_size(
    field: &'static str,
    output: Option<&Bytes>,
    job: &Job,
    queue: QueueContext<'_>,
) -> Result<(), Refusal> {
    let bytes = output.map_or(0, Bytes::len);
    match queue {
        QueueContext::Exists(admission) => check_size(field, bytes, admission),
        QueueContext::Deleted => check_size(field, bytes, &Settings::of_profile(job.policy.profile).admission),
    }
}

/// Ends the lease that `token` proves. A repeated settlement gets the same response and changes
/// nothing.
pub fn settle(
    job: &mut Job,
    token: Option<LeaseToken>,
    outcome: &Outcome,
    queue: QueueContext<'_>,
    context: &mut TransitionContext<'_>,
) -> Result<StateKind, Refusal> {
    let kind = outcome.kind();
    if token.is_some_and(|token| job.last_settlement == Some((token, kind))) {
        return Ok(job.kind());
    }
    let lease = lease::check(job, token, context.now)?;
    let returns_job = matches!(outcome, Outcome::Snooze { .. } | Outcome::Release);
    if returns_job && job.policy.profile.strict() {
        let verb = if kind == OutcomeKind::Snooze { "snoozed" } else { "released" };
        return Err(Refusal::IllegalTransition { from: job.kind(), verb });
    }
    if let Outcome::Complete { result, progress } = outcome {
        check_output_size("result", result.as_ref(), job, queue)?;
        check_output_size("progress", progress.as_ref(), job, queue)?;
    }
    let (token, cancel_requested, position) = (lease.token, lease.cancel_requested.is_some(), lease.position);
    match outcome {
        Outcome::Complete { result, progress } => complete(job, result.clone(), progress.clone(), context),
        Outcome::Fail(_) | Outcome::Snooze { .. } | Outcome::Release | Outcome::Undelivered if cancel_requested => {
            cancel::finish_requested_cancel(job, context);
        }
        Outcome::Fail(reported) => fail(job, reported, queue, context),
        // A deleted queue cannot take the job back.
        Outcome::Snooze { .. } | Outcome::Release | Outcome::Undelivered if queue == QueueContext::Deleted => {
            cancel::cancel_with_queue(job, context);
        }
        Outcome::Snooze { delay } => {
            let until = context.now + *delay;
            undo_start(job, AttemptOutcome::Snoozed, Some(*delay), context);
            job.transition_to(State::Delayed { until }, Cause::Snooze, context);
        }
        // A strict lifecycle has no transition from running to scheduled: the job becomes a retry
        // that is due at once and not counted.
        Outcome::Undelivered if job.policy.profile.strict() => {
            undo_start(job, AttemptOutcome::Released, Some(Duration::ZERO), context);
            job.transition_to(State::Retrying { until: context.now }, Cause::Release, context);
        }
        Outcome::Undelivered => {
            undo_start(job, AttemptOutcome::Released, None, context);
            job.make_ready_at(position, Cause::Release, context);
        }
        Outcome::Release => {
            undo_start(job, AttemptOutcome::Released, None, context);
            job.make_ready(Cause::Release, context);
        }
    }
    job.last_settlement = Some((token, kind));
    Ok(job.kind())
}

fn complete(job: &mut Job, result: Option<Bytes>, progress: Option<Bytes>, context: &mut TransitionContext<'_>) {
    job.close_attempt(AttemptOutcome::Completed, None, None, context.now);
    job.result = result;
    if progress.is_some() {
        job.progress = progress;
    }
    if job.policy.clear_error_on_success {
        job.error = None;
    }
    job.finish(TerminalState::Completed, Cause::Complete, context);
}

fn fail(job: &mut Job, reported: &ReportedFailure, queue: QueueContext<'_>, context: &mut TransitionContext<'_>) {
    let attempt_failure = AttemptFailure {
        failure: reported.failure(context.now),
        eligibility: if reported.unrecoverable {
            RetryEligibility::Unrecoverable
        } else {
            RetryEligibility::ByCategory
        },
        retry_after: reported.retry_after,
        outcome: AttemptOutcome::Failed,
        cause: Cause::Fail,
    };
    fail_attempt(job, attempt_failure, queue, context);
}

/// Closes the attempt and takes its start back.
fn undo_start(
    job: &mut Job,
    outcome: AttemptOutcome,
    next_delay: Option<Duration>,
    context: &mut TransitionContext<'_>,
) {
    job.close_attempt(outcome, None, next_delay, context.now);
    job.counters.starts = job.counters.starts.saturating_sub(1);
}
