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

    pub fn next_expiry(&self) -> LeaseEnd {
        match (self.expires_at, self.deadline_at) {
            (Some(expiry), Some(deadline)) if expiry >= deadline => LeaseEnd::Deadline(deadline),
            (Some(expiry), Some(_) | None) => LeaseEnd::Expiry(expiry),
            (None, Some(deadline)) => LeaseEnd::Deadline(deadline),
            (None, None) => LeaseEnd::Never,
        }
    }

    /// Adds the time from `seen` to `now`, in which the store was closed, to expiry and deadline. What was left of the lease at `seen` is left at `now`.
    /// A lease that had ended by `seen` does not change.
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
    fn a_live_lease_keeps_its_remainder_over_a_gap() {
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
    fn an_expired_lease_stays_expired_over_a_gap() {
        for (expires_at, deadline_at) in [(Some(60), None), (Some(60), Some(90)), (Some(60), Some(60))] {
            let (before, mut after) = (lease(expires_at, deadline_at), lease(expires_at, deadline_at));
            after.keep_remainder(at(60), at(3_600));
            assert_eq!(after, before);
        }
    }
}
