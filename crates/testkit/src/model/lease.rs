//! Work: claims, settlements, heartbeats, and the consequences of a failure.

use super::fields::{is_name, is_type};
use super::job::{Attempt, Error, Lease, State};
use super::rules::{Counts, DURATION_MAX, OnPermanent, Profile, Refusal, VALIDATION};

use super::{Model, server_error};
use crate::target::{Answer, Claimed, Command, Handle, Millis, Outcome, Token};

const MOST_CLAIMED: usize = 1_000;
const MOST_TYPES: usize = 100;
/// Longer messages are truncated.
const MESSAGE_BYTES_MAX: usize = 8_192;

/// A failure of a run, reported by the worker or detected by the server.
pub(crate) struct Failure {
    pub category: &'static str,
    pub code: Option<String>,
    pub message: String,
    pub retry_after: Option<Millis>,
    pub unrecoverable: bool,
    /// A lost lease that counts as a failure is retried in every category.
    pub always_ordinary: bool,
    pub outcome: &'static str,
    pub cause: &'static str,
}

/// The arguments of a claim.
pub(crate) struct Claim<'a> {
    pub queues: &'a [String],
    pub worker: &'a str,
    pub limit: usize,
    pub types: &'a [String],
    pub lease: Option<Millis>,
    pub execution_timeout: Option<Millis>,
}

impl Model {
    pub(crate) fn claim(&mut self, claim: &Claim) -> Result<Answer, Refusal> {
        let limit_ok = (1..=MOST_CLAIMED).contains(&claim.limit);
        let lease_ok = claim.lease.is_none_or(|lease| (1..=DURATION_MAX).contains(&lease));
        let timeout_ok = claim.execution_timeout.is_none_or(|timeout| (0..=DURATION_MAX).contains(&timeout));
        let types_ok = claim.types.len() <= MOST_TYPES && claim.types.iter().all(|job_type| is_type(job_type));
        // The name of a worker has the bounds of a type.
        let worker_ok = is_type(claim.worker);
        let queues_ok = !claim.queues.is_empty() && claim.queues.iter().all(|queue| is_name(queue));
        if !limit_ok || !lease_ok || !timeout_ok || !types_ok || !worker_ok || !queues_ok {
            return Err(VALIDATION);
        }
        let mut claimed = Vec::new();
        // A worker that an operator holds back gets nothing.
        let queues = if self.held_back.contains(claim.worker) { &[] } else { claim.queues };
        for queue in queues {
            while claimed.len() < claim.limit {
                let Some(handle) = self.first_in_line(queue, claim.types) else { break };
                claimed.push(self.start(handle, claim));
            }
        }
        Ok(Answer::Claimed(claimed))
    }

    /// Applies settlements one by one, then the claim. A refused claim applies nothing.
    pub(crate) fn settle_and_claim(
        &mut self,
        settle: &[(Handle, Token, Outcome)],
        claim: &Command,
    ) -> Result<Answer, Refusal> {
        // A claim changes nothing before its checks, and a copy of the model shows the refusal.
        self.clone().dispatch(claim)?;
        let verdict = |answer: Result<Answer, Refusal>| match answer {
            Ok(Answer::State { state, .. }) => state,
            Ok(other) => panic!("a settlement answered {other:?}"),
            Err(refusal) => refusal.to_owned(),
        };
        let verdicts = settle.iter().map(|(job, token, outcome)| verdict(self.settle(*job, token, outcome))).collect();
        self.propagate();
        match self.dispatch(claim)? {
            Answer::Claimed(claimed) => Ok(Answer::SettledAndClaimed { verdicts, claimed }),
            other => panic!("a claim answered {other:?}"),
        }
    }

    fn first_in_line(&self, queue: &str, types: &[String]) -> Option<Handle> {
        let settings = self.queues.get(queue).filter(|settings| !settings.paused)?;
        let by_priority = settings.rules.priority_order;
        (0..self.jobs.len())
            .filter(|handle| {
                let job = &self.jobs[*handle];
                !job.removed
                    && job.queue == queue
                    && (job.state == State::Scheduled || job.is_lapsed())
                    && (types.is_empty() || types.contains(&job.job_type))
            })
            .min_by_key(|handle| {
                let job = &self.jobs[*handle];
                (if by_priority { job.effective_priority() } else { 0 }, job.position)
            })
    }

    fn start(&mut self, handle: Handle, claim: &Claim) -> Claimed {
        let now = self.now;
        let job = self.job_mut(handle);
        if job.is_lapsed() {
            job.counters.reclaims += 1;
            job.close_attempt(now, "lease_expired", None);
            job.move_to(State::Running, now, "lease_expired");
        } else {
            job.move_to(State::Running, now, "claim");
        }
        // 0 is off on either side; the claim can only shorten the timeout.
        let timeouts = [job.rules.execution_timeout, claim.execution_timeout.unwrap_or(0)];
        let deadline_at = timeouts.into_iter().filter(|timeout| *timeout > 0).min().map(|timeout| now + timeout);
        let length = claim.lease.unwrap_or(job.rules.lease);
        let expires_at = lease_end(now, length, deadline_at);
        job.counters.starts += 1;
        job.lease_version += 1;
        job.started_at = Some(now);
        job.first_started_at = job.first_started_at.or(Some(now));
        job.last_heartbeat_at = None;
        job.attempt_ended_at = None;
        job.progress = None;
        job.settled = None;
        job.lease = Some(Lease { worker: claim.worker.to_owned(), length, expires_at, deadline_at, lapsed: false });
        let (version, attempt) = (job.lease_version, job.counters.starts);
        job.open_attempt(Attempt {
            number: attempt,
            lease_version: version,
            worker: claim.worker.to_owned(),
            started_at: now,
            ended_at: None,
            outcome: None,
            category: None,
            next_delay: None,
        });
        // The next failure is final if it uses up the limit.
        let (counters, limit) = (&job.counters, job.rules.limit);
        let last_attempt = match job.rules.counts {
            Counts::Starts => attempt >= limit,
            Counts::Failures => counters.failures + 1 >= limit,
            Counts::Retries => counters.retries_scheduled >= limit,
        };
        let lease_duration = (length > 0).then_some(length);
        Claimed { job: handle, version, attempt, expires_at, deadline_at, lease_duration, last_attempt }
    }

    fn require_token(&self, handle: Handle, token: &Token) -> Result<(), Refusal> {
        let missing = *token == Token::Missing;
        if missing && self.jobs[handle].rules.fencing_required { Err(VALIDATION) } else { Ok(()) }
    }

    /// Whether the caller may settle the current run: the right token, in time.
    pub(crate) fn check_token(&self, handle: Handle, token: &Token) -> Result<(), Refusal> {
        self.require_token(handle, token)?;
        let job = &self.jobs[handle];
        let current = match token {
            Token::Version(version) => *version == job.lease_version,
            Token::Bogus => false,
            Token::Missing => true,
        };
        if current && job.is_held_by_worker(self.now) { Ok(()) } else { Err("stale_lease") }
    }

    pub(crate) fn settle(&mut self, handle: Handle, token: &Token, outcome: &Outcome) -> Result<Answer, Refusal> {
        let category = check_outcome(outcome)?;
        self.find(handle)?;
        self.require_token(handle, token)?;
        let word = outcome_word(outcome);
        let job = &self.jobs[handle];
        let repeated = matches!(token, Token::Version(version) if job.settled == Some((*version, word)));
        if repeated {
            return Ok(self.state_of(handle));
        }
        self.check_token(handle, token)?;
        let job = &self.jobs[handle];
        if job.profile == Profile::Document && matches!(outcome, Outcome::Snooze { .. } | Outcome::Release) {
            return Err("illegal_transition");
        }
        if let Outcome::Complete { result, progress } = outcome {
            self.check_size(handle, result.as_ref())?;
            self.check_size(handle, progress.as_ref())?;
        }
        let version = self.jobs[handle].lease_version;
        match outcome {
            Outcome::Complete { result, progress } => {
                if progress.is_some() {
                    self.job_mut(handle).progress = progress.clone();
                }
                self.complete(handle, result.clone());
            }
            Outcome::Fail { code, message, retry_after, unrecoverable, .. } => {
                // A permanent error always has a code.
                let code = code.clone().or_else(|| (category == "permanent").then(|| "permanent".to_owned()));
                let failure = Failure {
                    category,
                    code,
                    message: message.chars().take(MESSAGE_BYTES_MAX).collect(),
                    retry_after: *retry_after,
                    unrecoverable: *unrecoverable,
                    always_ordinary: false,
                    outcome: "failed",
                    cause: "fail",
                };
                self.fail(handle, failure);
            }
            Outcome::Snooze { delay } => self.return_to_queue(handle, Some(*delay)),
            Outcome::Release => self.return_to_queue(handle, None),
        }
        self.job_mut(handle).settled = Some((version, word));
        Ok(self.state_of(handle))
    }

    pub(crate) fn complete(&mut self, handle: Handle, result: Option<String>) {
        let now = self.now;
        let job = self.job_mut(handle);
        job.close_attempt(now, "completed", None);
        job.result = result;
        if job.rules.clear_error_on_success {
            job.error = None;
        }
        self.end(handle, State::Completed, "complete", None);
    }

    /// Snoozes (with a delay) or releases (without). The start is not counted.
    fn return_to_queue(&mut self, handle: Handle, delay: Option<Millis>) {
        if self.jobs[handle].cancel_requested {
            self.cancel_as_requested(handle);
            return;
        }
        let now = self.now;
        let job = self.job_mut(handle);
        job.counters.starts = job.counters.starts.saturating_sub(1);
        job.close_attempt(now, if delay.is_some() { "snoozed" } else { "released" }, None);
        match delay {
            Some(delay) => {
                job.move_to(State::Delayed, now, "snooze");
                job.run_at = Some(now + delay);
                if let Some(attempt) = job.attempts.last_mut() {
                    attempt.next_delay = Some(delay);
                }
            }
            None => self.enter_scheduled(handle, "release"),
        }
    }

    /// Records a failure and decides what follows.
    pub(crate) fn fail(&mut self, handle: Handle, failure: Failure) {
        if self.jobs[handle].cancel_requested {
            self.cancel_as_requested(handle);
            return;
        }
        let now = self.now;
        let exhausted_state = self.exhausted_state(handle);
        let job = self.job_mut(handle);
        job.counters.failures += 1;
        job.close_attempt(now, failure.outcome, Some(failure.category));
        let error = Error { category: failure.category, code: failure.code, message: failure.message };
        let rules = &job.rules;
        let final_by_category = match failure.category {
            "permanent" => rules.on_permanent != OnPermanent::Retry,
            "timeout" => rules.timeout_is_final,
            "system" => rules.system_is_final,
            _ => false,
        };
        let is_final = failure.unrecoverable || (final_by_category && !failure.always_ordinary);
        let end = if is_final {
            Some(match rules.on_permanent {
                OnPermanent::Failed => State::Failed,
                OnPermanent::DeadLetter => State::DeadLetter,
                OnPermanent::Retry => exhausted_state,
            })
        } else {
            let spent = match rules.counts {
                Counts::Starts => job.counters.starts >= rules.limit,
                Counts::Failures => job.counters.failures >= rules.limit,
                Counts::Retries => job.counters.retries_scheduled >= rules.limit,
            };
            spent.then_some(exhausted_state)
        };
        match end {
            Some(to) => self.end(handle, to, failure.cause, Some(error)),
            None => self.plan_retry(handle, failure.cause, error, failure.retry_after),
        }
    }

    fn plan_retry(&mut self, handle: Handle, cause: &'static str, error: Error, retry_after: Option<Millis>) {
        let now = self.now;
        let job = self.job_mut(handle);
        job.counters.retries_scheduled += 1;
        let hint = retry_after.filter(|_| job.rules.honour_retry_after);
        let (least, most) = match hint {
            Some(wish) => {
                let mut delay = job.rules.clamp_to_cap(wish);
                if job.rules.lifetime > 0 {
                    delay = delay.min(job.lifetime_from + job.rules.lifetime - now);
                }
                (delay, delay)
            }
            None => job.rules.delay_window(job.counters.retries_scheduled),
        };
        job.move_to(State::Retrying, now, cause);
        job.error = Some(error);
        job.run_at = Some(now + least);
        if least < most {
            job.run_at_window = Some((now + least, now + most));
        }
        if let Some(attempt) = job.attempts.last_mut() {
            attempt.next_delay = Some(least);
        }
    }

    pub(crate) fn exhausted_state(&self, handle: Handle) -> State {
        if self.jobs[handle].rules.exhausted_is_dead_letter { State::DeadLetter } else { State::Failed }
    }

    /// Ends a run whose cancellation was requested.
    pub(crate) fn cancel_as_requested(&mut self, handle: Handle) {
        let message = self.jobs[handle].cancel_message.clone();
        let error = Error { message, ..server_error("cancelled", "cancelled") };
        self.end_by_force(handle, State::Cancelled, "cancel", error);
    }

    pub(crate) fn heartbeat(
        &mut self,
        handle: Handle,
        token: &Token,
        progress: Option<&String>,
        checkpoint: Option<&String>,
    ) -> Result<Answer, Refusal> {
        self.find(handle)?;
        self.check_token(handle, token)?;
        self.check_size(handle, progress)?;
        self.check_size(handle, checkpoint)?;
        let now = self.now;
        let job = self.job_mut(handle);
        job.last_heartbeat_at = Some(now);
        job.progress = progress.cloned().or(job.progress.take());
        job.checkpoint = checkpoint.cloned().or(job.checkpoint.take());
        let mut expires_at = None;
        if let Some(lease) = &mut job.lease {
            lease.expires_at = lease_end(now, lease.length, lease.deadline_at);
            expires_at = lease.expires_at;
        }
        Ok(Answer::Extended { expires_at, cancel_requested: job.cancel_requested })
    }

    /// Checks the size of results, progress and checkpoints, which the current payload limit
    /// bounds.
    pub(crate) fn check_size(&self, handle: Handle, bytes: Option<&String>) -> Result<(), Refusal> {
        let most = self.queues.get(&self.jobs[handle].queue).map_or(usize::MAX, |queue| queue.rules.payload_max);
        if bytes.is_some_and(|bytes| bytes.len() > most) { Err("payload_too_large") } else { Ok(()) }
    }
}

/// Returns the end of a lease, which is at most the execution deadline. Without both it has no end.
fn lease_end(now: Millis, length: Millis, deadline_at: Option<Millis>) -> Option<Millis> {
    let end = (length > 0).then(|| now + length);
    [end, deadline_at].into_iter().flatten().min()
}

/// Checks an outcome without its job. Returns the category of a failure.
fn check_outcome(outcome: &Outcome) -> Result<&'static str, Refusal> {
    let allowed = |duration: Millis| (0..=DURATION_MAX).contains(&duration);
    match outcome {
        Outcome::Complete { .. } | Outcome::Release => Ok(""),
        Outcome::Snooze { delay } => {
            if allowed(*delay) {
                Ok("")
            } else {
                Err(VALIDATION)
            }
        }
        Outcome::Fail { category, code, retry_after, .. } => {
            let short = code.as_ref().is_none_or(|code| code.chars().count() <= 256);
            if !short || !retry_after.is_none_or(allowed) {
                return Err(VALIDATION);
            }
            let reported = ["temporary", "permanent", "timeout", "system"];
            reported.into_iter().find(|word| word == category).ok_or(VALIDATION)
        }
    }
}

fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Complete { .. } => "complete",
        Outcome::Fail { .. } => "fail",
        Outcome::Snooze { .. } => "snooze",
        Outcome::Release => "release",
    }
}
