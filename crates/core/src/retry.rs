//! What follows a failed attempt: a retry after the backoff, or the end of the job.

use std::sync::Arc;

pub use crate::queue_context::QueueContext;

use crate::attempt::AttemptOutcome;
use crate::context::TransitionContext;
use crate::failure::{Category, Failure};
use crate::history::Cause;
use crate::job::Job;
use crate::policy::{OnExhausted, OnFailure, OnPermanent, RetryLimitUnit};
use crate::state::{State, TerminalState};
use crate::time::Duration;

/// A failed attempt, reported by its worker or detected by the server.
pub(crate) struct AttemptFailure {
    pub failure: Failure,
    pub eligibility: RetryEligibility,
    pub retry_after: Option<Duration>,
    pub outcome: AttemptOutcome,
    pub cause: Cause,
}

/// Whether the attempt may be retried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryEligibility {
    /// The category and the policy decide.
    ByCategory,
    /// Retried while the limit allows, for any category.
    Ordinary,
    /// The worker reported that a retry would fail again.
    Unrecoverable,
}

/// What follows a failed attempt.
enum RetryDecision {
    Retry(Duration),
    End(TerminalState),
}

/// Records the failure of the open attempt, then schedules a retry or ends the job.
pub(crate) fn fail_attempt(
    job: &mut Job,
    attempt_failure: AttemptFailure,
    queue: QueueContext<'_>,
    context: &mut TransitionContext<'_>,
) {
    let decision = retry_decision(job, &attempt_failure, context);
    let AttemptFailure { failure, outcome, cause, .. } = attempt_failure;
    let failure = Arc::new(failure);
    let delay = match (&decision, queue) {
        (RetryDecision::Retry(delay), QueueContext::Exists(_)) => Some(*delay),
        (RetryDecision::Retry(_), QueueContext::Deleted) | (RetryDecision::End(_), _) => None,
    };
    job.counters.failures += 1;
    job.close_attempt(outcome, Some(Arc::clone(&failure)), delay, context.now);
    job.error = Some(failure);
    match (decision, queue) {
        (RetryDecision::Retry(delay), QueueContext::Exists(_)) => {
            job.counters.retries_scheduled += 1;
            job.transition_to(State::Retrying { until: context.now + delay }, cause, context);
        }
        (RetryDecision::Retry(_), QueueContext::Deleted) => {
            job.finish(TerminalState::Failed, Cause::QueueDeleted, context);
        }
        (RetryDecision::End(ending), QueueContext::Exists(_) | QueueContext::Deleted) => {
            job.finish(ending, cause, context);
        }
    }
}

/// Decides between a retry and the end of the job.
fn retry_decision(job: &Job, attempt_failure: &AttemptFailure, context: &mut TransitionContext<'_>) -> RetryDecision {
    let retry = &job.policy.retry;
    let is_permanent = attempt_failure.failure.category == Category::Permanent;
    let is_final = match attempt_failure.eligibility {
        RetryEligibility::Unrecoverable => true,
        RetryEligibility::Ordinary => false,
        RetryEligibility::ByCategory => match attempt_failure.failure.category {
            Category::Timeout => retry.on_timeout == OnFailure::Final,
            Category::System => retry.on_system == OnFailure::Final,
            Category::Temporary | Category::Permanent | Category::Cancelled => false,
        },
    };
    let by_policy = attempt_failure.eligibility != RetryEligibility::Ordinary;
    match retry.on_permanent {
        OnPermanent::Failed if by_policy && (is_final || is_permanent) => {
            return RetryDecision::End(TerminalState::Failed);
        }
        OnPermanent::DeadLetter if by_policy && (is_final || is_permanent) => {
            return RetryDecision::End(TerminalState::DeadLetter);
        }
        OnPermanent::Retry if is_final => return RetryDecision::End(exhausted_state(job)),
        OnPermanent::Failed | OnPermanent::DeadLetter | OnPermanent::Retry => {}
    }
    if limit_reached(job) {
        return RetryDecision::End(exhausted_state(job));
    }
    RetryDecision::Retry(delay(job, attempt_failure.retry_after, context))
}

/// Whether the limit allows no retry after the failure that is being recorded.
fn limit_reached(job: &Job) -> bool {
    let retry = &job.policy.retry;
    match retry.counts {
        RetryLimitUnit::Starts => job.counters.starts >= retry.limit,
        RetryLimitUnit::Failures => job.counters.failures.saturating_add(1) >= retry.limit,
        RetryLimitUnit::Retries => job.counters.retries_scheduled >= retry.limit,
    }
}

/// Whether an ordinary failure of the running attempt would end the job: the limit is reached, or a
/// cancel is requested.
///
/// Failures that always end the job (permanent, `final: true`) are not considered.
pub fn is_last_attempt(job: &Job) -> bool {
    limit_reached(job) || job.state.lease().is_some_and(|lease| lease.cancel_requested.is_some())
}

/// Whether the present limit would not have allowed the retry for which the job waits.
pub(crate) fn limit_exceeded(job: &Job) -> bool {
    let retry = &job.policy.retry;
    match retry.counts {
        RetryLimitUnit::Starts => job.counters.starts >= retry.limit,
        RetryLimitUnit::Failures => job.counters.failures >= retry.limit,
        RetryLimitUnit::Retries => job.counters.retries_scheduled > retry.limit,
    }
}

/// Returns the terminal state of a job without further retries.
pub(crate) fn exhausted_state(job: &Job) -> TerminalState {
    match job.policy.retry.on_exhausted {
        OnExhausted::DeadLetter => TerminalState::DeadLetter,
        OnExhausted::Failed => TerminalState::Failed,
    }
}

/// Returns the wait before the retry: `retry_after` of the worker, or the backoff.
fn delay(job: &Job, retry_after: Option<Duration>, context: &mut TransitionContext<'_>) -> Duration {
    let retry = &job.policy.retry;
    if let Some(requested) = retry_after.filter(|_| retry.honour_retry_after) {
        let remaining = job.lifetime_ends_at.map(|end| end.since(context.now));
        let requested = retry.backoff.capped(requested);
        return remaining.map_or(requested, |remaining| requested.min(remaining));
    }
    let number = job.counters.retries_scheduled.saturating_add(1);
    retry.backoff.jittered(number, retry.jitter, context.rng)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{ClaimOptions, claim};
    use crate::failure::{ReportedCategory, ReportedFailure};
    use crate::id::{JobId, JobType, LeaseVersion, QueueName, Seq};
    use crate::policy::Settings;
    use crate::profile::Profile;
    use crate::settle::{Outcome, settle};
    use crate::submit::new_pending;
    use crate::time::Timestamp;

    struct FixedRng;

    impl crate::rng::Rng for FixedRng {
        fn next_u64(&mut self) -> u64 {
            7
        }
    }

    fn at<T>(millis: i64, act: impl FnOnce(&mut TransitionContext<'_>) -> T) -> T {
        act(&mut TransitionContext {
            now: Timestamp::from_millis(millis),
            rng: &mut FixedRng,
            next_seq: &mut 100,
            lease_floor: LeaseVersion::default(),
            transitions: &mut Vec::new(),
        })
    }

    fn running(profile: Profile, counts: RetryLimitUnit, limit: u32) -> Job {
        let mut policy = Settings::of_profile(profile).policy;
        policy.retry.counts = counts;
        policy.retry.limit = limit;
        let (queue, kind) = (QueueName::new("q").unwrap(), JobType::new("t").unwrap());
        at(0, |context| {
            let mut job = new_pending(JobId::from_bytes([1; 16]), Seq(1), queue, kind, policy.into(), context);
            job.make_ready(Cause::Submit, context);
            claim(&mut job, &ClaimOptions::default(), context).unwrap();
            job
        })
    }

    /// `is_last_attempt` predicts the effect of an ordinary failure, at every attempt.
    #[test]
    fn failure_of_last_attempt_ends_job() {
        for profile in Profile::ALL {
            let admission = Settings::of_profile(*profile).admission;
            for (counts, limit) in
                RetryLimitUnit::ALL.iter().flat_map(|counts| (0..4).map(move |limit| (*counts, limit)))
            {
                let mut job = running(*profile, counts, limit);
                for attempt in 1..8 {
                    let (is_last, now) = (is_last_attempt(&job), i64::from(attempt) * 1_000);
                    let token = job.state.lease().map(|lease| lease.token);
                    let failed = Outcome::Fail(ReportedFailure::new(ReportedCategory::Temporary, "x"));
                    at(now, |context| settle(&mut job, token, &failed, QueueContext::Exists(&admission), context))
                        .unwrap();
                    assert_eq!(job.state.terminal(), is_last, "{profile} {counts} {limit}: attempt {attempt}");
                    if is_last {
                        break;
                    }
                    at(now, |context| {
                        job.make_ready(Cause::Due, context);
                        claim(&mut job, &ClaimOptions::default(), context).unwrap();
                    });
                }
                assert!(job.state.terminal(), "{profile} {counts} {limit} ends");
            }
        }
    }

    /// A released attempt does not count; a requested cancel makes any attempt the last.
    #[test]
    fn release_and_cancel_change_last_attempt() {
        let admission = Settings::of_profile(Profile::Standard).admission;
        let mut job = running(Profile::Standard, RetryLimitUnit::Starts, 2);
        assert!(!is_last_attempt(&job));
        let token = job.state.lease().map(|lease| lease.token);
        at(1_000, |context| settle(&mut job, token, &Outcome::Release, QueueContext::Exists(&admission), context))
            .unwrap();
        at(1_000, |context| claim(&mut job, &ClaimOptions::default(), context)).unwrap();
        assert!(!is_last_attempt(&job), "the first start was released");
        if let State::Running(lease) = &mut job.state {
            lease.cancel_requested = Some("stop".into());
        }
        assert!(is_last_attempt(&job));
    }
}
