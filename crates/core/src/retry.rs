//! What follows a failed run: another try after a while, or the end.

use std::sync::Arc;

use crate::attempt::AttemptOutcome;
use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::job::{Job, Moment};
use crate::policy::{Counts, Intake, OnExhausted, OnPermanent, OnTrouble};
use crate::state::{Ending, State};
use crate::time::Duration;

/// A failed run, whoever noticed it.
pub(crate) struct Trouble {
    pub failure: Failure,
    pub weight: Weight,
    pub retry_after: Option<Duration>,
    pub outcome: AttemptOutcome,
    pub cause: Cause,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// The category and the policy decide.
    ByCategory,
    /// Retried while the limit allows, whatever the category.
    Ordinary,
    /// The reporter knows that another try is pointless.
    Unrecoverable,
}

/// Where a failed run leads.
enum Next {
    Retry(Duration),
    End(Ending),
}

/// The queue that a job belongs to, as it is now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Home<'a> {
    Exists(&'a Intake),
    /// A retry has nowhere to go back to.
    Deleted,
}

/// Records the failure of the open attempt and moves the job on.
pub(crate) fn fail_attempt(job: &mut Job, trouble: Trouble, home: Home<'_>, moment: &mut Moment<'_>) {
    let next = decide(job, &trouble, moment);
    let Trouble { failure, outcome, cause, .. } = trouble;
    let failure = Arc::new(failure);
    let delay = match (&next, home) {
        (Next::Retry(delay), Home::Exists(_)) => Some(*delay),
        (Next::Retry(_), Home::Deleted) | (Next::End(_), _) => None,
    };
    job.counters.failures += 1;
    job.close_attempt(outcome, Some(Arc::clone(&failure)), delay, moment.now);
    job.error = Some(failure);
    match (next, home) {
        (Next::Retry(delay), Home::Exists(_)) => {
            job.counters.retries_scheduled += 1;
            job.enter(State::Retrying { until: moment.now + delay }, cause, moment);
        }
        (Next::Retry(_), Home::Deleted) => job.end(Ending::Failed, Cause::QueueDeleted, moment),
        (Next::End(ending), Home::Exists(_) | Home::Deleted) => job.end(ending, cause, moment),
    }
}

fn decide(job: &Job, trouble: &Trouble, moment: &mut Moment<'_>) -> Next {
    let retry = &job.policy.retry;
    let permanent = trouble.failure.category == Category::Permanent;
    let hopeless = match trouble.weight {
        Weight::Unrecoverable => true,
        Weight::Ordinary => false,
        Weight::ByCategory => match trouble.failure.category {
            Category::Timeout => retry.on_timeout == OnTrouble::Final,
            Category::System => retry.on_system == OnTrouble::Final,
            Category::Temporary | Category::Permanent | Category::Cancelled => false,
        },
    };
    let weighed = trouble.weight != Weight::Ordinary;
    match retry.on_permanent {
        OnPermanent::Failed if weighed && (hopeless || permanent) => return Next::End(Ending::Failed),
        OnPermanent::DeadLetter if weighed && (hopeless || permanent) => return Next::End(Ending::DeadLetter),
        OnPermanent::Retry if hopeless => return Next::End(exhausted(job)),
        OnPermanent::Failed | OnPermanent::DeadLetter | OnPermanent::Retry => {}
    }
    if limit_reached(job) {
        return Next::End(exhausted(job));
    }
    Next::Retry(delay(job, trouble.retry_after, moment))
}

/// Whether the failure that is being recorded is one too many.
fn limit_reached(job: &Job) -> bool {
    let retry = &job.policy.retry;
    match retry.counts {
        Counts::Starts => job.counters.starts >= retry.limit,
        Counts::Failures => job.counters.failures.saturating_add(1) >= retry.limit,
        Counts::Retries => job.counters.retries_scheduled >= retry.limit,
    }
}

/// Whether a job that has already failed would not have been retried under its present limit.
pub(crate) fn past_limit(job: &Job) -> bool {
    let retry = &job.policy.retry;
    match retry.counts {
        Counts::Starts => job.counters.starts >= retry.limit,
        Counts::Failures => job.counters.failures >= retry.limit,
        Counts::Retries => job.counters.retries_scheduled > retry.limit,
    }
}

pub(crate) fn exhausted(job: &Job) -> Ending {
    match job.policy.retry.on_exhausted {
        OnExhausted::DeadLetter => Ending::DeadLetter,
        OnExhausted::Failed => Ending::Failed,
    }
}

fn delay(job: &Job, retry_after: Option<Duration>, moment: &mut Moment<'_>) -> Duration {
    let retry = &job.policy.retry;
    if let Some(asked) = retry_after.filter(|_| retry.honour_retry_after) {
        let left = job.lifetime_ends_at.map(|end| end.since(moment.now));
        let asked = retry.backoff.capped(asked);
        return left.map_or(asked, |left| asked.min(left));
    }
    let number = job.counters.retries_scheduled.saturating_add(1);
    retry.backoff.jittered(number, retry.jitter, moment.dice)
}
