//! A worker takes a job under a new lease: from the line, or over from a worker that was lost.

use crate::attempt::{Attempt, AttemptOutcome};
use crate::history::Cause;
use crate::id::{AttemptId, LeaseToken, LeaseVersion, WorkerName};
use crate::job::{Job, TransitionContext};
use crate::lease::Lease;
use crate::refusal::{Invalid, Refusal};
use crate::state::State;
use crate::time::Duration;

/// What a worker asks for with a claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimOptions {
    pub worker: Option<WorkerName>,
    /// Instead of the job's own lease.
    pub lease: Option<Duration>,
    /// Shortens the job's own, never lengthens it; zero asks for nothing.
    pub execution_timeout: Option<Duration>,
}

impl ClaimOptions {
    pub fn check(&self) -> Result<(), Invalid> {
        if self.lease == Some(Duration::ZERO) {
            return Err(Invalid::new("lease", "must be above 0s"));
        }
        for (field, length) in [("lease", self.lease), ("execution_timeout", self.execution_timeout)] {
            length.unwrap_or_default().within_limit().map_err(|invalid| invalid.at(field))?;
        }
        Ok(())
    }
}

pub fn claim(job: &mut Job, terms: &ClaimOptions, moment: &mut TransitionContext<'_>) -> Result<(), Refusal> {
    let now = moment.now;
    let (position, cause) = match &job.state {
        State::Scheduled { position } => (*position, Cause::Claim),
        // Only lazily reclaimed jobs are offered while running; the lease decides, not the offer.
        State::Running(lease) if lease.expired(now) => (lease.position, Cause::LeaseExpired),
        State::Running(_)
        | State::Pending { .. }
        | State::Delayed { .. }
        | State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => return Err(Refusal::IllegalTransition { from: job.kind(), verb: "claimed" }),
    };
    if cause == Cause::LeaseExpired {
        job.counters.reclaims += 1;
        job.close_attempt(AttemptOutcome::LeaseExpired, None, None, now);
    }
    job.counters.starts += 1;
    job.lease_version = LeaseVersion(job.lease_version.max(moment.lease_floor).0 + 1);
    job.started_at = Some(now);
    job.first_started_at = job.first_started_at.or(Some(now));
    job.last_heartbeat_at = None;
    job.attempt_ended_at = None;
    job.progress = None;
    job.last_settlement = None;
    job.open_attempt(Attempt {
        id: AttemptId::random(moment.rng),
        previous_id: job.attempts.last().map(|attempt| attempt.id),
        number: job.counters.starts,
        worker: terms.worker.clone(),
        lease_version: job.lease_version,
        started_at: now,
        end: None,
    });
    let timeout = match (job.policy.execution_timeout, terms.execution_timeout.and_then(Duration::non_zero)) {
        (Some(own), Some(asked)) => Some(own.min(asked)),
        (own, asked) => own.or(asked),
    };
    let length = terms.lease.or(job.policy.lease);
    let deadline_at = timeout.map(|timeout| now + timeout);
    let lease = Lease {
        token: LeaseToken::random(moment.rng),
        worker: terms.worker.clone(),
        length,
        expires_at: Lease::expiry(length, deadline_at, now),
        deadline_at,
        cancel_requested: None,
        position,
    };
    job.transition_to(State::Running(lease), cause, moment);
    Ok(())
}
