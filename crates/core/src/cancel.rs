//! Ends by decree: cancel, an operator's dead letter, the end of the lifetime.

use std::sync::Arc;

use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::id::bounded_text;
use crate::job::{Job, Moment};
use crate::limits::REASON_CHARS_MAX;
use crate::policy::{CancelRunning, Policy, Retention};
use crate::refusal::{Invalid, Refusal};
use crate::state::{Ending, State, StateKind};
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
    bounded_text("reason", reason.unwrap_or_default(), REASON_CHARS_MAX)
}

pub fn cancel(
    job: &mut Job,
    reason: Option<&str>,
    force: Force,
    moment: &mut Moment<'_>,
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
pub(crate) fn heed(job: &mut Job, moment: &mut Moment<'_>) {
    let reason = job.state.lease().and_then(|lease| lease.cancel_requested.clone());
    end_cancelled(job, reason.as_deref().unwrap_or_default(), moment);
}

pub(crate) fn end_cancelled(job: &mut Job, reason: &str, moment: &mut Moment<'_>) {
    let message = if reason.is_empty() { "cancelled" } else { reason };
    let failure = Failure::found(Category::Cancelled, "cancelled", message, moment.now);
    job.end_by_decree(Ending::Cancelled, failure, Cause::Cancel, moment);
}

/// The queue goes, and takes its living jobs along.
pub fn end_with_queue(job: &mut Job, moment: &mut Moment<'_>) {
    if !job.state.terminal() {
        let failure = Failure::found(Category::Cancelled, "queue_deleted", "the queue was deleted", moment.now);
        job.end_by_decree(Ending::Cancelled, failure, Cause::QueueDeleted, moment);
    }
}

/// The same for a job that goes as soon as nobody depends on it any more, whatever its retention.
pub fn vanish_with_queue(job: &mut Job, moment: &mut Moment<'_>) {
    end_with_queue(job, moment);
    let policy = Policy {
        retention: Retention { cancelled: Some(Duration::ZERO), ..job.policy.retention },
        ..Policy::clone(&job.policy)
    };
    job.policy = Arc::new(policy);
}

/// The queue to which a waiting retry would return is gone: it ends as the failure it was.
pub fn end_retry_with_queue(job: &mut Job, moment: &mut Moment<'_>) {
    match job.kind() {
        StateKind::Retrying => job.end(Ending::Failed, Cause::QueueDeleted, moment),
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

pub fn dead_letter(job: &mut Job, reason: Option<&str>, moment: &mut Moment<'_>) -> Result<StateKind, Refusal> {
    if job.state.terminal() || job.policy.profile.strict() {
        return Err(Refusal::IllegalTransition { from: job.kind(), verb: "dead-lettered" });
    }
    let message = reason.unwrap_or("dead-lettered by an operator");
    let failure = Failure::found(Category::Permanent, "dead_letter", message, moment.now);
    job.end_by_decree(Ending::DeadLetter, failure, Cause::DeadLetter, moment);
    Ok(job.kind())
}

/// The time between submission and end is over. Says whether it was.
pub fn end_lifetime(job: &mut Job, moment: &mut Moment<'_>) -> bool {
    let over = job.lifetime_ends_at.is_some_and(|end| end <= moment.now);
    if job.state.terminal() || !over {
        return false;
    }
    let failure = Failure::found(Category::Timeout, "lifetime", "the total lifetime was exceeded", moment.now);
    job.end_by_decree(Ending::DeadLetter, failure, Cause::Lifetime, moment);
    true
}
