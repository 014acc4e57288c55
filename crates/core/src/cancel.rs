//! Ends outside a run: cancel, dead letter by an operator, end of the lifetime.

use std::sync::Arc;

use crate::context::TransitionContext;
use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::id::validate_length;
use crate::job::Job;
use crate::limits::REASON_CHARS_MAX;
use crate::policy::{CancelRunning, Policy, Retention};
use crate::refusal::{Invalid, Refusal};
use crate::state::{State, StateKind, TerminalState};
use crate::time::Duration;

/// How a running job is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// As the policy of the job says.
    ByPolicy,
    /// At once.
    Now,
}

/// Result of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The job has ended.
    Done,
    /// The worker gets the request with its next heartbeat.
    Requested,
}

/// Checks the reason, before any lookup.
pub fn check_reason(reason: Option<&str>) -> Result<(), Invalid> {
    validate_length("reason", reason.unwrap_or_default(), REASON_CHARS_MAX)
}

/// Cancels a job that has not ended: at once, or by a request to its worker.
pub fn cancel(
    job: &mut Job,
    reason: Option<&str>,
    force: Force,
    context: &mut TransitionContext<'_>,
) -> Result<Cancelled, Refusal> {
    let cooperative = force == Force::ByPolicy && job.policy.cancel_running == CancelRunning::Cooperative;
    match &mut job.state {
        State::Running(lease) if cooperative && !lease.expired(context.now) => {
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
    end_cancelled(job, reason.unwrap_or_default(), context);
    Ok(Cancelled::Done)
}

/// Ends a run whose cancel was requested and that has stopped without completing.
pub(crate) fn finish_requested_cancel(job: &mut Job, context: &mut TransitionContext<'_>) {
    let reason = job.state.lease().and_then(|lease| lease.cancel_requested.clone());
    end_cancelled(job, reason.as_deref().unwrap_or_default(), context);
}

/// Ends the job as cancelled.
pub(crate) fn end_cancelled(job: &mut Job, reason: &str, context: &mut TransitionContext<'_>) {
    let message = if reason.is_empty() { "cancelled" } else { reason };
    let failure = Failure::detected(Category::Cancelled, "cancelled", message, context.now);
    job.terminate(TerminalState::Cancelled, failure, Cause::Cancel, context);
}

/// Cancels a job that has not ended, because its queue is deleted.
pub fn cancel_with_queue(job: &mut Job, context: &mut TransitionContext<'_>) {
    if !job.state.terminal() {
        let failure = Failure::detected(Category::Cancelled, "queue_deleted", "the queue was deleted", context.now);
        job.terminate(TerminalState::Cancelled, failure, Cause::QueueDeleted, context);
    }
}

/// Cancels a job with its queue, and prunes it as soon as no unfinished job depends on it.
pub fn cancel_and_prune_with_queue(job: &mut Job, context: &mut TransitionContext<'_>) {
    cancel_with_queue(job, context);
    let policy = Policy {
        retention: Retention { cancelled: Some(Duration::ZERO), ..job.policy.retention },
        ..Policy::clone(&job.policy)
    };
    job.policy = Arc::new(policy);
}

/// Ends a waiting retry as failed, because its queue is deleted.
pub fn fail_retry_with_queue(job: &mut Job, context: &mut TransitionContext<'_>) {
    match job.kind() {
        StateKind::Retrying => job.finish(TerminalState::Failed, Cause::QueueDeleted, context),
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

/// Ends a job as a dead letter, by a command of an operator.
pub fn dead_letter(
    job: &mut Job,
    reason: Option<&str>,
    context: &mut TransitionContext<'_>,
) -> Result<StateKind, Refusal> {
    if job.state.terminal() || job.policy.profile.strict() {
        return Err(Refusal::IllegalTransition { from: job.kind(), verb: "dead-lettered" });
    }
    let message = reason.unwrap_or("dead-lettered by an operator");
    let failure = Failure::detected(Category::Permanent, "dead_letter", message, context.now);
    job.terminate(TerminalState::DeadLetter, failure, Cause::DeadLetter, context);
    Ok(job.kind())
}

/// Ends a job whose lifetime is over. Returns whether it was.
pub fn expire_lifetime(job: &mut Job, context: &mut TransitionContext<'_>) -> bool {
    let is_over = job.lifetime_ends_at.is_some_and(|end| end <= context.now);
    if job.state.terminal() || !is_over {
        return false;
    }
    let failure = Failure::detected(Category::Timeout, "lifetime", "the total lifetime was exceeded", context.now);
    job.terminate(TerminalState::DeadLetter, failure, Cause::Lifetime, context);
    true
}
