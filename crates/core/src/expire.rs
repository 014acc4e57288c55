//! Expiry of a running job: of its lease, or of its execution timeout.

use crate::attempt::AttemptOutcome;
use crate::cancel;
use crate::context::TransitionContext;
use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::job::Job;
use crate::lease::LeaseEnd;
use crate::policy::{OnLeaseExpiry, Reclaim};
use crate::queue_context::QueueContext;
use crate::retry::{self, AttemptFailure, RetryEligibility, fail_attempt};
use crate::state::State;

/// Result of an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryOutcome {
    /// Not running, or not due: another command was first.
    NotDue,
    Transitioned,
    /// Stays running; the next claim may take it over.
    Claimable,
}

/// Applies the execution timeout if the deadline has passed, else the expiry of the lease.
pub fn expire(job: &mut Job, queue: QueueContext<'_>, context: &mut TransitionContext<'_>) -> ExpiryOutcome {
    let State::Running(lease) = &job.state else {
        return ExpiryOutcome::NotDue;
    };
    let cancel_requested = lease.cancel_requested.is_some();
    match lease.next_expiry() {
        LeaseEnd::Deadline(at) if at <= context.now => {
            if cancel_requested {
                cancel::finish_requested_cancel(job, context);
            } else {
                time_out(job, queue, context);
            }
            ExpiryOutcome::Transitioned
        }
        LeaseEnd::Expiry(at) if at <= context.now => {
            if cancel_requested {
                cancel::finish_requested_cancel(job, context);
                return ExpiryOutcome::Transitioned;
            }
            on_lease_expired(job, queue, context)
        }
        LeaseEnd::Deadline(_) | LeaseEnd::Expiry(_) | LeaseEnd::Never => ExpiryOutcome::NotDue,
    }
}

/// Fails the attempt with an execution timeout.
fn time_out(job: &mut Job, queue: QueueContext<'_>, context: &mut TransitionContext<'_>) {
    let failure =
        Failure::detected(Category::Timeout, "execution_timeout", "the execution timeout was exceeded", context.now);
    let attempt_failure = AttemptFailure {
        failure,
        eligibility: RetryEligibility::ByCategory,
        retry_after: None,
        outcome: AttemptOutcome::TimedOut,
        cause: Cause::Timeout,
    };
    fail_attempt(job, attempt_failure, queue, context);
}

fn on_lease_expired(job: &mut Job, queue: QueueContext<'_>, context: &mut TransitionContext<'_>) -> ExpiryOutcome {
    if reclaim_limit_reached(job) {
        let failure = lease_failure(Category::System, context);
        job.counters.failures += 1;
        job.close_attempt(AttemptOutcome::LeaseExpired, Some(failure.clone().into()), None, context.now);
        job.error = Some(failure.into());
        job.finish(retry::exhausted_state(job), Cause::LeaseExpired, context);
        return ExpiryOutcome::Transitioned;
    }
    let (category, eligibility) = match job.policy.on_lease_expiry {
        OnLeaseExpiry::ReclaimCounted | OnLeaseExpiry::ReclaimFree => return reclaim(job, queue, context),
        OnLeaseExpiry::FailTimeout => (Category::Timeout, RetryEligibility::ByCategory),
        OnLeaseExpiry::FailRetryable => (Category::System, RetryEligibility::Ordinary),
    };
    let attempt_failure = AttemptFailure {
        failure: lease_failure(category, context),
        eligibility,
        retry_after: None,
        outcome: AttemptOutcome::LeaseExpired,
        cause: Cause::LeaseExpired,
    };
    fail_attempt(job, attempt_failure, queue, context);
    ExpiryOutcome::Transitioned
}

fn reclaim(job: &mut Job, queue: QueueContext<'_>, context: &mut TransitionContext<'_>) -> ExpiryOutcome {
    if queue == QueueContext::Deleted {
        // A deleted queue cannot take the job back.
        cancel::cancel_with_queue(job, context);
        return ExpiryOutcome::Transitioned;
    }
    match job.policy.reclaim {
        Reclaim::Lazy => ExpiryOutcome::Claimable,
        Reclaim::Eager => {
            job.counters.reclaims += 1;
            job.close_attempt(AttemptOutcome::LeaseExpired, None, None, context.now);
            job.make_ready(Cause::LeaseExpired, context);
            ExpiryOutcome::Transitioned
        }
    }
}

fn reclaim_limit_reached(job: &Job) -> bool {
    let reclaims_spent = job.policy.max_reclaims.is_some_and(|max| job.counters.reclaims >= max);
    let starts_spent = job.counters.starts >= job.policy.retry.starts_max();
    reclaims_spent || (starts_spent && job.policy.on_lease_expiry == OnLeaseExpiry::ReclaimCounted)
}

fn lease_failure(category: Category, context: &TransitionContext<'_>) -> Failure {
    Failure::detected(category, "lease_expired", "the lease expired: no heartbeat from its worker", context.now)
}
