//! Ends by decree: cancel, an operator's dead letter, the end of the lifetime.

use std::sync::Arc;

use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::id::validate_length;
use crate::job::{Job, TransitionContext};
use crate::limits::REASON_CHARS_MAX;
use crate::policy::{CancelRunning, Policy, Retention};
use crate::refusal::{Invalid, Refusal};
use crate::state::{State, StateKind, TerminalState};
use crate::time::Duration;

/// Whether a running job may be asked to stop, or must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// As the job's policy says.
    ByPolicy,
    Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    Done,
    /// The worker is told at its next heartbeat.
    Requested,
}

/// Asked before anything is looked up.
pub fn check_reason(reason: Option<&str>) -> Result<(), Invalid> {
    validate_length("reason", reason.unwrap_or_default(), REASON_CHARS_MAX)
}

pub fn cancel(
    job: &mut Job,
    reason: Option<&str>,
    force: Force,
    moment: &mut TransitionContext<'_>,
) -> Result<Cancelled, Refusal> {
    let cooperative = force == Force::ByPolicy && job.policy.cancel_running == CancelRunning::Cooperative;
    match &mut job.state {
        State::Running(lease) if cooperative && !lease.expired(moment.now) => {
            lease.cancel_requested.get_or_insert_with(|| reason.unwrap_or_default().into());
            return Ok(Cancelled::Requested);
        }
        State::Running(_)
        | State::Pending { .. }
        | State::Scheduled { .. }
        | State::Delayed { .. }
        | State::Retrying { .. } => {}
        State::Completed { .. } | State::Failed { .. } | State::DeadLetter { .. } | State::Cancelled { .. } => {
            return Err(Refusal::IllegalTransition { from: job.kind(), verb: "cancelled" });
        }
    }
    end_cancelled(job, reason.unwrap_or_default(), moment);
    Ok(Cancelled::Done)
}

/// A run whose cancellation was requested has stopped without completing.
pub(crate) fn finish_requested_cancel(job: &mut Job, moment: &mut TransitionContext<'_>) {
    let reason = job.state.lease().and_then(|lease| lease.cancel_requested.clone());
    end_cancelled(job, reason.as_deref().unwrap_or_default(), moment);
}

pub(crate) fn end_cancelled(job: &mut Job, reason: &str, moment: &mut TransitionContext<'_>) {
    let message = if reason.is_empty() { "cancelled" } else { reason };
    let failure = Failure::detected(Category::Cancelled, "cancelled", message, moment.now);
    job.terminate(TerminalState::Cancelled, failure, Cause::Cancel, moment);
}

/// The queue goes, and takes its living jobs along.
pub fn cancel_with_queue(job: &mut Job, moment: &mut TransitionContext<'_>) {
    if !job.state.terminal() {
        let failure = Failure::detected(Category::Cancelled, "queue_deleted", "the queue was deleted", moment.now);
        job.terminate(TerminalState::Cancelled, failure, Cause::QueueDeleted, moment);
    }
}

/// The same for a job that goes as soon as nobody depends on it any more, whatever its retention.
pub fn cancel_and_prune_with_queue(job: &mut Job, moment: &mut TransitionContext<'_>) {
    cancel_with_queue(job, moment);
    let policy = Policy {
        retention: Retention { cancelled: Some(Duration::ZERO), ..job.policy.retention },
        ..Policy::clone(&job.policy)
    };
    job.policy = Arc::new(policy);
}

/// The queue to which a waiting retry would return is gone: it ends as the failure it was.
pub fn fail_retry_with_queue(job: &mut Job, moment: &mut TransitionContext<'_>) {
    match job.kind() {
        StateKind::Retrying => job.finish(TerminalState::Failed, Cause::QueueDeleted, moment),
        StateKind::Pending
        | StateKind::Scheduled
        | StateKind::Delayed
        | StateKind::Running
        | StateKind::Completed
        | StateKind::Failed
        | StateKind::DeadLetter
        | StateKind::Cancelled => {}
    }
}

pub fn dead_letter(
    job: &mut Job,
    reason: Option<&str>,
    moment: &mut TransitionContext<'_>,
) -> Result<StateKind, Refusal> {
    if job.state.terminal() || job.policy.profile.strict() {
        return Err(Refusal::IllegalTransition { from: job.kind(), verb: "dead-lettered" });
    }
    let message = reason.unwrap_or("dead-lettered by an operator");
    let failure = Failure::detected(Category::Permanent, "dead_letter", message, moment.now);
    job.terminate(TerminalState::DeadLetter, failure, Cause::DeadLetter, moment);
    Ok(job.kind())
}

/// The time between submission and end is over. Says whether it was.
pub fn expire_lifetime(job: &mut Job, moment: &mut TransitionContext<'_>) -> bool {
    let over = job.lifetime_ends_at.is_some_and(|end| end <= moment.now);
    if job.state.terminal() || !over {
        return false;
    }
    let failure = Failure::detected(Category::Timeout, "lifetime", "the total lifetime was exceeded", moment.now);
    job.terminate(TerminalState::DeadLetter, failure, Cause::Lifetime, moment);
    true
}
