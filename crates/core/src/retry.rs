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

/// Whether an ordinary failure of the running attempt would end the job: its limit is reached, or a cancel is pending.
///
/// Failures that are final by themselves (permanent, `final: true`) are not considered: they end any attempt.
pub fn is_last_attempt(job: &Job) -> bool {
    limit_reached(job) || job.state.lease().is_some_and(|lease| lease.cancel_requested.is_some())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Terms, claim};
    use crate::failure::{Reported, ReportedCategory};
    use crate::id::{JobId, JobType, LeaseVersion, QueueName, Seq};
    use crate::profile::Profile;
    use crate::settle::{Outcome, settle};
    use crate::submit::blank;
    use crate::time::Timestamp;

    struct NoChance;

    impl crate::rng::Dice for NoChance {
        fn roll(&mut self) -> u64 {
            7
        }
    }

    fn at<T>(millis: i64, act: impl FnOnce(&mut Moment<'_>) -> T) -> T {
        act(&mut Moment {
            now: Timestamp::from_millis(millis),
            dice: &mut NoChance,
            next_number: &mut 100,
            lease_floor: LeaseVersion::default(),
            moves: &mut Vec::new(),
        })
    }

    fn running(profile: Profile, counts: Counts, limit: u32) -> Job {
        let mut policy = profile.settings().policy;
        policy.retry.counts = counts;
        policy.retry.limit = limit;
        let (queue, kind) = (QueueName::new("q").unwrap(), JobType::new("t").unwrap());
        at(0, |moment| {
            let mut job = blank(JobId::from_bytes([1; 16]), Seq(1), queue, kind, policy.into(), moment);
            job.enter_line(Cause::Submit, moment);
            claim(&mut job, &Terms::default(), moment).unwrap();
            job
        })
    }

    /// What is foretold is what an ordinary failure then does, at every attempt.
    #[test]
    fn the_last_attempt_is_the_one_whose_failure_ends_the_job() {
        for profile in Profile::ALL {
            let intake = profile.settings().intake;
            for (counts, limit) in Counts::ALL.iter().flat_map(|counts| (0..4).map(move |limit| (*counts, limit))) {
                let mut job = running(*profile, counts, limit);
                for attempt in 1..8 {
                    let (foretold, now) = (is_last_attempt(&job), i64::from(attempt) * 1_000);
                    let token = job.state.lease().map(|lease| lease.token);
                    let failed = Outcome::Fail(Reported::new(ReportedCategory::Temporary, "x"));
                    at(now, |moment| settle(&mut job, token, &failed, Home::Exists(&intake), moment)).unwrap();
                    assert_eq!(job.state.terminal(), foretold, "{profile} {counts} {limit}: attempt {attempt}");
                    if foretold {
                        break;
                    }
                    at(now, |moment| {
                        job.enter_line(Cause::Due, moment);
                        claim(&mut job, &Terms::default(), moment).unwrap();
                    });
                }
                assert!(job.state.terminal(), "{profile} {counts} {limit} has an end");
            }
        }
    }

    /// An attempt that was handed back does not count; a pending cancel makes any attempt the last.
    #[test]
    fn snoozes_and_cancels_move_the_last_attempt() {
        let intake = Profile::Standard.settings().intake;
        let mut job = running(Profile::Standard, Counts::Starts, 2);
        assert!(!is_last_attempt(&job));
        let token = job.state.lease().map(|lease| lease.token);
        at(1_000, |moment| settle(&mut job, token, &Outcome::Release, Home::Exists(&intake), moment)).unwrap();
        at(1_000, |moment| claim(&mut job, &Terms::default(), moment)).unwrap();
        assert!(!is_last_attempt(&job), "the first start was given back");
        if let State::Running(lease) = &mut job.state {
            lease.cancel_requested = Some("stop".into());
        }
        assert!(is_last_attempt(&job));
    }
}
