//! Claim: a worker gets a ready job, or an orphan, under a new lease.

use crate::attempt::{Attempt, AttemptOutcome};
use crate::context::TransitionContext;
use crate::history::Cause;
use crate::id::{AttemptId, LeaseToken, LeaseVersion, WorkerName};
use crate::job::Job;
use crate::lease::Lease;
use crate::limits::check_duration;
use crate::refusal::{Invalid, Refusal};
use crate::state::State;
use crate::time::Duration;

/// Options of a claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimOptions {
    pub worker: Option<WorkerName>,
    /// Replaces the lease of the job's policy.
    pub lease: Option<Duration>,
    /// Shortens the execution timeout of the job's policy. Zero: no effect.
    pub execution_timeout: Option<Duration>,
}

impl ClaimOptions {
    pub fn check(&self) -> Result<(), Invalid> {
        if self.lease == Some(Duration::ZERO) {
            return Err(Invalid::new("lease", "must be above 0s"));
        }
        for (field, duration) in [("lease", self.lease), ("execution_timeout", self.execution_timeout)] {
            check_duration(field, duration.unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Starts an attempt under a new lease, with a new token and the next lease version.
pub fn claim(job: &mut Job, options: &ClaimOptions, context: &mut TransitionContext<'_>) -> Result<(), Refusal> {
    let now = context.now;
    let (position, cause) = match &job.state {
        State::Scheduled { position } => (*position, Cause::Claim),
        // An orphan with lazy reclaim. The caller may offer any running job: its lease decides.
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
    job.lease_version = LeaseVersion(job.lease_version.max(context.lease_floor).0 + 1);
    job.started_at = Some(now);
    job.first_started_at = job.first_started_at.or(Some(now));
    job.last_heartbeat_at = None;
    job.attempt_ended_at = None;
    job.progress = None;
    job.last_settlement = None;
    job.open_attempt(Attempt {
        id: AttemptId::random(context.rng),
        previous_id: job.attempts.last().map(|attempt| attempt.id),
        number: job.counters.starts,
        worker: options.worker.clone(),
        lease_version: job.lease_version,
        started_at: now,
        end: None,
    });
    let timeout = match (job.policy.execution_timeout, options.execution_timeout.and_then(Duration::non_zero)) {
        (Some(own), Some(requested)) => Some(own.min(requested)),
        (own, requested) => own.or(requested),
    };
    let length = options.lease.or(job.policy.lease);
    let deadline_at = timeout.map(|timeout| now + timeout);
    let lease = Lease {
        token: LeaseToken::random(context.rng),
        worker: options.worker.clone(),
        length,
        expires_at: Lease::expiry(length, deadline_at, now),
        deadline_at,
        cancel_requested: None,
        position,
    };
    job.transition_to(State::Running(lease), cause, context);
    Ok(())
}
