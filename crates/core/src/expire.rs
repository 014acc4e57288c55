//! What the clock does to a running job: its lease expires, or its execution time is over.

use crate::attempt::AttemptOutcome;
use crate::cancel;
use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::job::{Job, Moment};
use crate::lease::LeaseEnd;
use crate::policy::{OnLeaseExpiry, Reclaim};
use crate::retry::{self, Home, Trouble, Weight, fail_attempt};
use crate::state::State;

/// What became of a running job whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Not running any more, or not yet due: somebody was faster.
    Untouched,
    Moved,
    /// Stays running, and the next claim may take it over.
    Claimable,
}

/// Judges a running job by the clock: a timeout where the deadline is reached, a lease expiry before it.
pub fn expire(job: &mut Job, home: Home<'_>, moment: &mut Moment<'_>) -> Expired {
    let State::Running(lease) = &job.state else {
        return Expired::Untouched;
    };
    let cancel_requested = lease.cancel_requested.is_some();
    match lease.end() {
        LeaseEnd::Deadline(at) if at <= moment.now => {
            if cancel_requested {
                cancel::heed(job, moment);
            } else {
                time_out(job, home, moment);
            }
            Expired::Moved
        }
        LeaseEnd::Expiry(at) if at <= moment.now => {
            if cancel_requested {
                cancel::heed(job, moment);
                return Expired::Moved;
            }
            lose_lease(job, home, moment)
        }
        LeaseEnd::Deadline(_) | LeaseEnd::Expiry(_) | LeaseEnd::Never => Expired::Untouched,
    }
}

fn time_out(job: &mut Job, home: Home<'_>, moment: &mut Moment<'_>) {
    let failure =
        Failure::found(Category::Timeout, "execution_timeout", "the execution timeout was exceeded", moment.now);
    let trouble = Trouble {
        failure,
        weight: Weight::ByCategory,
        retry_after: None,
        outcome: AttemptOutcome::TimedOut,
        cause: Cause::Timeout,
    };
    fail_attempt(job, trouble, home, moment);
}

fn lose_lease(job: &mut Job, home: Home<'_>, moment: &mut Moment<'_>) -> Expired {
    if orphaned_too_often(job) {
        let failure = lease_failure(Category::System, moment);
        job.counters.failures += 1;
        job.close_attempt(AttemptOutcome::LeaseExpired, Some(failure.clone().into()), None, moment.now);
        job.error = Some(failure.into());
        job.end(retry::exhausted(job), Cause::LeaseExpired, moment);
        return Expired::Moved;
    }
    let (category, weight) = match job.policy.on_lease_expiry {
        OnLeaseExpiry::ReclaimCounted | OnLeaseExpiry::ReclaimFree => return reclaim(job, home, moment),
        OnLeaseExpiry::FailTimeout => (Category::Timeout, Weight::ByCategory),
        OnLeaseExpiry::FailRetryable => (Category::System, Weight::Ordinary),
    };
    let trouble = Trouble {
        failure: lease_failure(category, moment),
        weight,
        retry_after: None,
        outcome: AttemptOutcome::LeaseExpired,
        cause: Cause::LeaseExpired,
    };
    fail_attempt(job, trouble, home, moment);
    Expired::Moved
}

fn reclaim(job: &mut Job, home: Home<'_>, moment: &mut Moment<'_>) -> Expired {
    if home == Home::Deleted {
        // There is no line to go back to.
        cancel::end_with_queue(job, moment);
        return Expired::Moved;
    }
    match job.policy.reclaim {
        Reclaim::Lazy => Expired::Claimable,
        Reclaim::Eager => {
            job.counters.reclaims += 1;
            job.close_attempt(AttemptOutcome::LeaseExpired, None, None, moment.now);
            job.enter_line(Cause::LeaseExpired, moment);
            Expired::Moved
        }
    }
}

fn orphaned_too_often(job: &Job) -> bool {
    let reclaims_spent = job.policy.max_reclaims.is_some_and(|max| job.counters.reclaims >= max);
    let starts_spent = job.counters.starts >= job.policy.retry.starts_max();
    reclaims_spent || (starts_spent && job.policy.on_lease_expiry == OnLeaseExpiry::ReclaimCounted)
}

fn lease_failure(category: Category, moment: &Moment<'_>) -> Failure {
    Failure::found(category, "lease_expired", "the lease expired: its worker was not heard of again", moment.now)
}
