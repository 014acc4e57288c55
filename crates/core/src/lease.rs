//! Leases, and the check that every request of a worker for a running job passes.

use std::sync::Arc;

use crate::id::{LeaseToken, WorkerName};
use crate::job::Job;
use crate::policy::Fencing;
use crate::refusal::{Refusal, Stale};
use crate::state::State;
use crate::time::{Duration, Timestamp};

/// Exclusive right of one worker to a job until a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    pub token: LeaseToken,
    pub worker: Option<WorkerName>,
    /// Time that a heartbeat extends the lease by; `None`: the lease lasts until the deadline.
    pub length: Option<Duration>,
    pub expires_at: Option<Timestamp>,
    /// End of the execution timeout; heartbeats do not extend it.
    pub deadline_at: Option<Timestamp>,
    /// Reason of a cancel that waits for the worker to stop; may be empty.
    pub cancel_requested: Option<Arc<str>>,
    /// Queue position before the claim: an orphan with lazy reclaim is offered there again.
    pub position: u64,
}

/// How a lease ends without further requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The execution timeout; wins when both fall on the same instant.
    Deadline(Timestamp),
    Expiry(Timestamp),
    Never,
}

impl Lease {
    /// Whether the lease has expired: it is valid strictly before `expires_at`.
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Returns what ends the lease first.
    pub fn next_expiry(&self) -> LeaseEnd {
        match (self.expires_at, self.deadline_at) {
            (Some(expiry), Some(deadline)) if expiry >= deadline => LeaseEnd::Deadline(deadline),
            (Some(expiry), Some(_) | None) => LeaseEnd::Expiry(expiry),
            (None, Some(deadline)) => LeaseEnd::Deadline(deadline),
            (None, None) => LeaseEnd::Never,
        }
    }

    /// Adds the time from `seen` to `now`, in which the store was closed, to expiry and deadline.
    /// The remaining time at `now` equals that at `seen`. A lease that had ended by `seen` is
    /// unchanged.
    pub fn keep_remainder(&mut self, seen: Timestamp, now: Timestamp) {
        match self.next_expiry() {
            LeaseEnd::Deadline(at) | LeaseEnd::Expiry(at) if at > seen => {
                let closed = now.since(seen);
                self.expires_at = self.expires_at.map(|at| at + closed);
                self.deadline_at = self.deadline_at.map(|at| at + closed);
            }
            LeaseEnd::Deadline(_) | LeaseEnd::Expiry(_) | LeaseEnd::Never => {}
        }
    }

    /// Returns the expiry after a claim or heartbeat at `now`.
    pub fn expiry(length: Option<Duration>, deadline_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        match (length.map(|length| now + length), deadline_at) {
            (Some(expiry), Some(deadline)) => Some(expiry.min(deadline)),
            (expiry, deadline) => expiry.or(deadline),
        }
    }
}

/// Returns the lease that `token` proves, or why it proves none.
pub fn check(job: &Job, token: Option<LeaseToken>, now: Timestamp) -> Result<&Lease, Refusal> {
    if token.is_none() && job.policy.fencing == Fencing::Required {
        return Err(Refusal::invalid("lease", "is required: the token from the response to the claim"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SeededRng;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_millis(secs * 1_000)
    }

    fn lease(expires_at: Option<i64>, deadline_at: Option<i64>) -> Lease {
        Lease {
            token: LeaseToken::random(&mut SeededRng::new(1)),
            worker: None,
            length: Some(Duration::from_secs(60)),
            expires_at: expires_at.map(at),
            deadline_at: deadline_at.map(at),
            cancel_requested: None,
            position: 1,
        }
    }

    #[test]
    fn valid_lease_keeps_remaining_time_over_gap() {
        let ends = |mut lease: Lease, seen: i64, now: i64| {
            lease.keep_remainder(at(seen), at(now));
            (lease.expires_at, lease.deadline_at)
        };
        assert_eq!(ends(lease(Some(60), None), 10, 3_610), (Some(at(3_660)), None));
        assert_eq!(ends(lease(Some(60), Some(90)), 10, 3_610), (Some(at(3_660)), Some(at(3_690))));
        assert_eq!(ends(lease(Some(90), Some(90)), 10, 3_610), (Some(at(3_690)), Some(at(3_690))));
        assert_eq!(ends(lease(None, None), 10, 3_610), (None, None));
        assert_eq!(ends(lease(Some(60), None), 10, 10), (Some(at(60)), None), "no gap");
        assert_eq!(ends(lease(Some(60), None), 10, 5), (Some(at(60)), None), "never shorter");
    }

    #[test]
    fn expired_lease_stays_expired_over_gap() {
        for (expires_at, deadline_at) in [(Some(60), None), (Some(60), Some(90)), (Some(60), Some(60))] {
            let (before, mut after) = (lease(expires_at, deadline_at), lease(expires_at, deadline_at));
            after.keep_remainder(at(60), at(3_600));
            assert_eq!(after, before);
        }
    }
}
