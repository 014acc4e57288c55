//! A worker ends its lease: complete, fail, snooze or release.

use std::fmt;

use bytes::Bytes;

use crate::attempt::AttemptOutcome;
use crate::cancel;
use crate::failure::ReportedFailure;
use crate::history::Cause;
use crate::id::LeaseToken;
use crate::job::{Job, TransitionContext};
use crate::lease;
use crate::policy::string_enum;
use crate::refusal::{Invalid, Refusal};
use crate::retry::{AttemptFailure, QueueContext, RetryEligibility, fail_attempt};
use crate::state::{State, StateKind, TerminalState};
use crate::submit::check_size;
use crate::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Complete {
        result: Option<Bytes>,
        /// The last progress note; absent, the note of the last heartbeat stays.
        progress: Option<Bytes>,
    },
    Fail(ReportedFailure),
    /// Come back later; no attempt is spent.
    Snooze {
        delay: Duration,
    },
    /// Hand it back untouched; the worker is stopping.
    Release,
    /// The server gives back a lease whose answer never left it. No worker can report this.
    Undelivered,
}

string_enum!(
    /// An outcome without its data: what makes two settlements the same.
    OutcomeKind { Complete = "complete", Fail = "fail", Snooze = "snooze", Release = "release" }
);

impl Outcome {
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Complete { .. } => OutcomeKind::Complete,
            Self::Fail(_) => OutcomeKind::Fail,
            Self::Snooze { .. } => OutcomeKind::Snooze,
            Self::Release | Self::Undelivered => OutcomeKind::Release,
        }
    }

    /// What is wrong with it whatever the job; asked before anything is looked up.
    pub fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Complete { .. } | Self::Release | Self::Undelivered => {}
            Self::Fail(reported) => reported.check()?,
            Self::Snooze { delay } => {
                delay.within_limit().map_err(|invalid| invalid.at("delay"))?;
            }
        }
        Ok(())
    }
}

/// What a worker leaves with a job is bounded like a payload.
pub(crate) fn check_output_size(
    field: &'static str,
    note: Option<&Bytes>,
    job: &Job,
    home: QueueContext<'_>,
) -> Result<(), Refusal> {
    let bytes = note.map_or(0, Bytes::len);
    match home {
        QueueContext::Exists(intake) => check_size(field, bytes, intake),
        QueueContext::Deleted => check_size(field, bytes, &job.policy.profile.settings().intake),
    }
}

/// Ends the lease that `token` proves. The same settlement again is answered again, without effect.
pub fn settle(
    job: &mut Job,
    token: Option<LeaseToken>,
    outcome: &Outcome,
    home: QueueContext<'_>,
    moment: &mut TransitionContext<'_>,
) -> Result<StateKind, Refusal> {
    let kind = outcome.kind();
    if token.is_some_and(|token| job.last_settlement == Some((token, kind))) {
        return Ok(job.kind());
    }
    let lease = lease::check(job, token, moment.now)?;
    let hands_back = matches!(outcome, Outcome::Snooze { .. } | Outcome::Release);
    if hands_back && job.policy.profile.strict() {
        let verb = if kind == OutcomeKind::Snooze { "snoozed" } else { "released" };
        return Err(Refusal::IllegalTransition { from: job.kind(), verb });
    }
    if let Outcome::Complete { result, progress } = outcome {
        check_output_size("result", result.as_ref(), job, home)?;
        check_output_size("progress", progress.as_ref(), job, home)?;
    }
    let (token, cancel_requested, position) = (lease.token, lease.cancel_requested.is_some(), lease.position);
    match outcome {
        Outcome::Complete { result, progress } => complete(job, result.clone(), progress.clone(), moment),
        Outcome::Fail(_) | Outcome::Snooze { .. } | Outcome::Release | Outcome::Undelivered if cancel_requested => {
            cancel::finish_requested_cancel(job, moment);
        }
        Outcome::Fail(reported) => fail(job, reported, home, moment),
        // There is no line to go back to.
        Outcome::Snooze { .. } | Outcome::Release | Outcome::Undelivered if home == QueueContext::Deleted => {
            cancel::cancel_with_queue(job, moment);
        }
        Outcome::Snooze { delay } => {
            let until = moment.now + *delay;
            undo_start(job, AttemptOutcome::Snoozed, Some(*delay), moment);
            job.transition_to(State::Delayed { until }, Cause::Snooze, moment);
        }
        // A strict lifecycle has no way from running to scheduled: the job takes the way of a retry that is due at once and not counted.
        Outcome::Undelivered if job.policy.profile.strict() => {
            undo_start(job, AttemptOutcome::Released, Some(Duration::ZERO), moment);
            job.transition_to(State::Retrying { until: moment.now }, Cause::Release, moment);
        }
        Outcome::Undelivered => {
            undo_start(job, AttemptOutcome::Released, None, moment);
            job.make_ready_at(position, Cause::Release, moment);
        }
        Outcome::Release => {
            undo_start(job, AttemptOutcome::Released, None, moment);
            job.make_ready(Cause::Release, moment);
        }
    }
    job.last_settlement = Some((token, kind));
    Ok(job.kind())
}

fn complete(job: &mut Job, result: Option<Bytes>, progress: Option<Bytes>, moment: &mut TransitionContext<'_>) {
    job.close_attempt(AttemptOutcome::Completed, None, None, moment.now);
    job.result = result;
    if progress.is_some() {
        job.progress = progress;
    }
    if job.policy.clear_error_on_success {
        job.error = None;
    }
    job.finish(TerminalState::Completed, Cause::Complete, moment);
}

fn fail(job: &mut Job, reported: &ReportedFailure, home: QueueContext<'_>, moment: &mut TransitionContext<'_>) {
    let trouble = AttemptFailure {
        failure: reported.failure(moment.now),
        weight: if reported.unrecoverable { RetryEligibility::Unrecoverable } else { RetryEligibility::ByCategory },
        retry_after: reported.retry_after,
        outcome: AttemptOutcome::Failed,
        cause: Cause::Fail,
    };
    fail_attempt(job, trouble, home, moment);
}

fn undo_start(
    job: &mut Job,
    outcome: AttemptOutcome,
    next_delay: Option<Duration>,
    moment: &mut TransitionContext<'_>,
) {
    job.close_attempt(outcome, None, next_delay, moment.now);
    job.counters.starts = job.counters.starts.saturating_sub(1);
}
