//! What the clock does to a running job: its lease expires, or its execution time is over.

use crate::attempt::AttemptOutcome;
use crate::cancel;
use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::job::{Job, TransitionContext};
use crate::lease::LeaseEnd;
use crate::policy::{OnLeaseExpiry, Reclaim};
use crate::retry::{self, AttemptFailure, QueueContext, RetryEligibility, fail_attempt};
use crate::state::State;

/// What became of a running job whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryOutcome {
    /// Not running any more, or not yet due: somebody was faster.
    NotDue,
    Transitioned,
    /// Stays running, and the next claim may take it over.
    Claimable,
}

/// Judges a running job by the clock: a timeout where the deadline is reached, a lease expiry before it.
pub fn expire(job: &mut Job, home: QueueContext<'_>, moment: &mut TransitionContext<'_>) -> ExpiryOutcome {
    let State::Running(lease) = &job.state else {
        return ExpiryOutcome::NotDue;
    };
    let cancel_requested = lease.cancel_requested.is_some();
    match lease.next_expiry() {
        LeaseEnd::Deadline(at) if at <= moment.now => {
            if cancel_requested {
                cancel::finish_requested_cancel(job, moment);
            } else {
                time_out(job, home, moment);
            }
            ExpiryOutcome::Transitioned
        }
        LeaseEnd::Expiry(at) if at <= moment.now => {
            if cancel_requested {
                cancel::finish_requested_cancel(job, moment);
                return ExpiryOutcome::Transitioned;
            }
            on_lease_expired(job, home, moment)
        }
        LeaseEnd::Deadline(_) | LeaseEnd::Expiry(_) | LeaseEnd::Never => ExpiryOutcome::NotDue,
    }
}

fn time_out(job: &mut Job, home: QueueContext<'_>, moment: &mut TransitionContext<'_>) {
    let failure =
        Failure::detected(Category::Timeout, "execution_timeout", "the execution timeout was exceeded", moment.now);
    let trouble = AttemptFailure {
        failure,
        weight: RetryEligibility::ByCategory,
        retry_after: None,
        outcome: AttemptOutcome::TimedOut,
        cause: Cause::Timeout,
    };
    fail_attempt(job, trouble, home, moment);
}

fn on_lease_expired(job: &mut Job, home: QueueContext<'_>, moment: &mut TransitionContext<'_>) -> ExpiryOutcome {
    if reclaim_limit_reached(job) {
        let failure = lease_failure(Category::System, moment);
        job.counters.failures += 1;
        job.close_attempt(AttemptOutcome::LeaseExpired, Some(failure.clone().into()), None, moment.now);
        job.error = Some(failure.into());
        job.finish(retry::exhausted_state(job), Cause::LeaseExpired, moment);
        return ExpiryOutcome::Transitioned;
    }
    let (category, weight) = match job.policy.on_lease_expiry {
        OnLeaseExpiry::ReclaimCounted | OnLeaseExpiry::ReclaimFree => return reclaim(job, home, moment),
        OnLeaseExpiry::FailTimeout => (Category::Timeout, RetryEligibility::ByCategory),
        OnLeaseExpiry::FailRetryable => (Category::System, RetryEligibility::Ordinary),
    };
    let trouble = AttemptFailure {
        failure: lease_failure(category, moment),
        weight,
        retry_after: None,
        outcome: AttemptOutcome::LeaseExpired,
        cause: Cause::LeaseExpired,
    };
    fail_attempt(job, trouble, home, moment);
    ExpiryOutcome::Transitioned
}

fn reclaim(job: &mut Job, home: QueueContext<'_>, moment: &mut TransitionContext<'_>) -> ExpiryOutcome {
    if home == QueueContext::Deleted {
        // There is no line to go back to.
        cancel::cancel_with_queue(job, moment);
        return ExpiryOutcome::Transitioned;
    }
    match job.policy.reclaim {
        Reclaim::Lazy => ExpiryOutcome::Claimable,
        Reclaim::Eager => {
            job.counters.reclaims += 1;
            job.close_attempt(AttemptOutcome::LeaseExpired, None, None, moment.now);
            job.make_ready(Cause::LeaseExpired, moment);
            ExpiryOutcome::Transitioned
        }
    }
}

fn reclaim_limit_reached(job: &Job) -> bool {
    let reclaims_spent = job.policy.max_reclaims.is_some_and(|max| job.counters.reclaims >= max);
    let starts_spent = job.counters.starts >= job.policy.retry.starts_max();
    reclaims_spent || (starts_spent && job.policy.on_lease_expiry == OnLeaseExpiry::ReclaimCounted)
}

fn lease_failure(category: Category, moment: &TransitionContext<'_>) -> Failure {
    Failure::detected(category, "lease_expired", "the lease expired: its worker was not heard of again", moment.now)
}
