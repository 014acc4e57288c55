//! What follows a failed run: another try after a while, or the end.

use std::sync::Arc;

use crate::attempt::AttemptOutcome;
use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::job::{Job, TransitionContext};
use crate::policy::{AdmissionSettings, OnExhausted, OnFailure, OnPermanent, RetryLimitUnit};
use crate::state::{State, TerminalState};
use crate::time::Duration;

/// A failed run, whoever noticed it.
pub(crate) struct AttemptFailure {
    pub failure: Failure,
    pub weight: RetryEligibility,
    pub retry_after: Option<Duration>,
    pub outcome: AttemptOutcome,
    pub cause: Cause,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryEligibility {
    /// The category and the policy decide.
    ByCategory,
    /// Retried while the limit allows, whatever the category.
    Ordinary,
    /// The reporter knows that another try is pointless.
    Unrecoverable,
}

/// Where a failed run leads.
enum RetryDecision {
    Retry(Duration),
    End(TerminalState),
}

/// The queue that a job belongs to, as it is now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueContext<'a> {
    Exists(&'a AdmissionSettings),
    /// A retry has nowhere to go back to.
    Deleted,
}

/// Records the failure of the open attempt and moves the job on.
pub(crate) fn fail_attempt(
    job: &mut Job,
    trouble: AttemptFailure,
    home: QueueContext<'_>,
    moment: &mut TransitionContext<'_>,
) {
    let next = retry_decision(job, &trouble, moment);
    let AttemptFailure { failure, outcome, cause, .. } = trouble;
    let failure = Arc::new(failure);
    let delay = match (&next, home) {
        (RetryDecision::Retry(delay), QueueContext::Exists(_)) => Some(*delay),
        (RetryDecision::Retry(_), QueueContext::Deleted) | (RetryDecision::End(_), _) => None,
    };
    job.counters.failures += 1;
    job.close_attempt(outcome, Some(Arc::clone(&failure)), delay, moment.now);
    job.error = Some(failure);
    match (next, home) {
        (RetryDecision::Retry(delay), QueueContext::Exists(_)) => {
            job.counters.retries_scheduled += 1;
            job.transition_to(State::Retrying { until: moment.now + delay }, cause, moment);
        }
        (RetryDecision::Retry(_), QueueContext::Deleted) => {
            job.finish(TerminalState::Failed, Cause::QueueDeleted, moment)
        }
        (RetryDecision::End(ending), QueueContext::Exists(_) | QueueContext::Deleted) => {
            job.finish(ending, cause, moment)
        }
    }
}

fn retry_decision(job: &Job, trouble: &AttemptFailure, moment: &mut TransitionContext<'_>) -> RetryDecision {
    let retry = &job.policy.retry;
    let permanent = trouble.failure.category == Category::Permanent;
    let hopeless = match trouble.weight {
        RetryEligibility::Unrecoverable => true,
        RetryEligibility::Ordinary => false,
        RetryEligibility::ByCategory => match trouble.failure.category {
            Category::Timeout => retry.on_timeout == OnFailure::Final,
            Category::System => retry.on_system == OnFailure::Final,
            Category::Temporary | Category::Permanent | Category::Cancelled => false,
        },
    };
    let weighed = trouble.weight != RetryEligibility::Ordinary;
    match retry.on_permanent {
        OnPermanent::Failed if weighed && (hopeless || permanent) => return RetryDecision::End(TerminalState::Failed),
        OnPermanent::DeadLetter if weighed && (hopeless || permanent) => {
            return RetryDecision::End(TerminalState::DeadLetter);
        }
        OnPermanent::Retry if hopeless => return RetryDecision::End(exhausted_state(job)),
        OnPermanent::Failed | OnPermanent::DeadLetter | OnPermanent::Retry => {}
    }
    if limit_reached(job) {
        return RetryDecision::End(exhausted_state(job));
    }
    RetryDecision::Retry(delay(job, trouble.retry_after, moment))
}

/// Whether the failure that is being recorded is one too many.
fn limit_reached(job: &Job) -> bool {
    let retry = &job.policy.retry;
    match retry.counts {
        RetryLimitUnit::Starts => job.counters.starts >= retry.limit,
        RetryLimitUnit::Failures => job.counters.failures.saturating_add(1) >= retry.limit,
        RetryLimitUnit::Retries => job.counters.retries_scheduled >= retry.limit,
    }
}

/// Whether an ordinary failure of the running attempt would end the job: its limit is reached, or a cancel is pending.
///
/// Failures that are final by themselves (permanent, `final: true`) are not considered: they end any attempt.
pub fn is_last_attempt(job: &Job) -> bool {
    limit_reached(job) || job.state.lease().is_some_and(|lease| lease.cancel_requested.is_some())
}

/// Whether a job that has already failed would not have been retried under its present limit.
pub(crate) fn limit_exceeded(job: &Job) -> bool {
    let retry = &job.policy.retry;
    match retry.counts {
        RetryLimitUnit::Starts => job.counters.starts >= retry.limit,
        RetryLimitUnit::Failures => job.counters.failures >= retry.limit,
        RetryLimitUnit::Retries => job.counters.retries_scheduled > retry.limit,
    }
}

pub(crate) fn exhausted_state(job: &Job) -> TerminalState {
    match job.policy.retry.on_exhausted {
        OnExhausted::DeadLetter => TerminalState::DeadLetter,
        OnExhausted::Failed => TerminalState::Failed,
    }
}

fn delay(job: &Job, retry_after: Option<Duration>, moment: &mut TransitionContext<'_>) -> Duration {
    let retry = &job.policy.retry;
    if let Some(asked) = retry_after.filter(|_| retry.honour_retry_after) {
        let left = job.lifetime_ends_at.map(|end| end.since(moment.now));
        let asked = retry.backoff.capped(asked);
        return left.map_or(asked, |left| asked.min(left));
    }
    let number = job.counters.retries_scheduled.saturating_add(1);
    retry.backoff.jittered(number, retry.jitter, moment.rng)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{ClaimOptions, claim};
    use crate::failure::{ReportedCategory, ReportedFailure};
    use crate::id::{JobId, JobType, LeaseVersion, QueueName, Seq};
    use crate::profile::Profile;
    use crate::settle::{Outcome, settle};
    use crate::submit::new_pending;
    use crate::time::Timestamp;

    struct NoChance;

    impl crate::rng::Rng for NoChance {
        fn next_u64(&mut self) -> u64 {
            7
        }
    }

    fn at<T>(millis: i64, act: impl FnOnce(&mut TransitionContext<'_>) -> T) -> T {
        act(&mut TransitionContext {
            now: Timestamp::from_millis(millis),
            rng: &mut NoChance,
            next_seq: &mut 100,
            lease_floor: LeaseVersion::default(),
            transitions: &mut Vec::new(),
        })
    }

    fn running(profile: Profile, counts: RetryLimitUnit, limit: u32) -> Job {
        let mut policy = profile.settings().policy;
        policy.retry.counts = counts;
        policy.retry.limit = limit;
        let (queue, kind) = (QueueName::new("q").unwrap(), JobType::new("t").unwrap());
        at(0, |moment| {
            let mut job = new_pending(JobId::from_bytes([1; 16]), Seq(1), queue, kind, policy.into(), moment);
            job.make_ready(Cause::Submit, moment);
            claim(&mut job, &ClaimOptions::default(), moment).unwrap();
            job
        })
    }

    /// What is foretold is what an ordinary failure then does, at every attempt.
    #[test]
    fn the_last_attempt_is_the_one_whose_failure_ends_the_job() {
        for profile in Profile::ALL {
            let intake = profile.settings().intake;
            for (counts, limit) in
                RetryLimitUnit::ALL.iter().flat_map(|counts| (0..4).map(move |limit| (*counts, limit)))
            {
                let mut job = running(*profile, counts, limit);
                for attempt in 1..8 {
                    let (foretold, now) = (is_last_attempt(&job), i64::from(attempt) * 1_000);
                    let token = job.state.lease().map(|lease| lease.token);
                    let failed = Outcome::Fail(ReportedFailure::new(ReportedCategory::Temporary, "x"));
                    at(now, |moment| settle(&mut job, token, &failed, QueueContext::Exists(&intake), moment)).unwrap();
                    assert_eq!(job.state.terminal(), foretold, "{profile} {counts} {limit}: attempt {attempt}");
                    if foretold {
                        break;
                    }
                    at(now, |moment| {
                        job.make_ready(Cause::Due, moment);
                        claim(&mut job, &ClaimOptions::default(), moment).unwrap();
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
        let mut job = running(Profile::Standard, RetryLimitUnit::Starts, 2);
        assert!(!is_last_attempt(&job));
        let token = job.state.lease().map(|lease| lease.token);
        at(1_000, |moment| settle(&mut job, token, &Outcome::Release, QueueContext::Exists(&intake), moment)).unwrap();
        at(1_000, |moment| claim(&mut job, &ClaimOptions::default(), moment)).unwrap();
        assert!(!is_last_attempt(&job), "the first start was given back");
        if let State::Running(lease) = &mut job.state {
            lease.cancel_requested = Some("stop".into());
        }
        assert!(is_last_attempt(&job));
    }
}
