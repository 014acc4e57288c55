//! The right of one worker to one job until a time, and the check that every call of a worker passes.

use std::sync::Arc;

use crate::id::{LeaseToken, WorkerName};
use crate::job::Job;
use crate::policy::Fencing;
use crate::refusal::{Refusal, Stale};
use crate::state::State;
use crate::time::{Duration, Timestamp};

#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    pub token: LeaseToken,
    pub worker: Option<WorkerName>,
    /// What a heartbeat adds to now; `None`: the lease lasts until the deadline.
    pub length: Option<Duration>,
    pub expires_at: Option<Timestamp>,
    /// End of the execution timeout; no heartbeat reaches past it.
    pub deadline_at: Option<Timestamp>,
    /// Somebody wants this run to stop; the reason they gave, which may be empty.
    pub cancel_requested: Option<Arc<str>>,
    /// The place in line it was claimed from: an orphan that is reclaimed lazily still stands there.
    pub position: u64,
}

/// How a lease will end if nobody does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The execution timeout; wins when both fall on the same instant.
    Deadline(Timestamp),
    Expiry(Timestamp),
    Never,
}

impl Lease {
    /// Valid strictly before its expiry.
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    pub fn end(&self) -> LeaseEnd {
        match (self.expires_at, self.deadline_at) {
            (Some(expiry), Some(deadline)) if expiry >= deadline => LeaseEnd::Deadline(deadline),
            (Some(expiry), Some(_) | None) => LeaseEnd::Expiry(expiry),
            (None, Some(deadline)) => LeaseEnd::Deadline(deadline),
            (None, None) => LeaseEnd::Never,
        }
    }

    /// Expiry after a claim or heartbeat at `now`.
    pub fn expiry(length: Option<Duration>, deadline_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        match (length.map(|length| now + length), deadline_at) {
            (Some(expiry), Some(deadline)) => Some(expiry.min(deadline)),
            (expiry, deadline) => expiry.or(deadline),
        }
    }
}

/// The lease that `token` proves, or why it proves none. Everybody who speaks for a running job comes through here.
pub fn check(job: &Job, token: Option<LeaseToken>, now: Timestamp) -> Result<&Lease, Refusal> {
    if token.is_none() && job.policy.fencing == Fencing::Required {
        return Err(Refusal::invalid("lease", "is required: the token that the claim answered"));
    }
    let State::Running(lease) = &job.state else {
        return Err(Refusal::StaleLease(Stale::NotRunning));
    };
    if token.is_some_and(|token| token != lease.token) {
        return Err(Refusal::StaleLease(Stale::Mismatch));
    }
    if lease.expired(now) {
        return Err(Refusal::StaleLease(Stale::Expired));
    }
    Ok(lease)
}
