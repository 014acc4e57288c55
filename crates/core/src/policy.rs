//! Resolved settings of queues and jobs. `patch.rs` has the overrides, `profile.rs` the values.
//!
//! A job keeps the [`Policy`] of its creation. [`AdmissionSettings`] are read from the queue on
//! use.

use crate::backoff::{Backoff, Jitter};
use crate::profile::Profile;
use crate::state::StateKind;
use crate::time::Duration;

pub use longshore_types::{
    CancelRunning, Fencing, IdempotencyScope, ManualRequeue, OnExhausted, OnFailure, OnLeaseExpiry, OnPermanent,
    Reclaim, RequeueOrder, RetryLimitUnit, SubmitMode,
};

/// Settings of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub policy: Policy,
    pub admission: AdmissionSettings,
}

/// Settings that a job keeps from its creation to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub profile: Profile,
    pub retry: Retry,
    pub execution_timeout: Option<Duration>,
    /// Time after a claim or heartbeat during which no other worker can claim the job.
    pub lease: Option<Duration>,
    pub on_lease_expiry: OnLeaseExpiry,
    /// `None`: no limit.
    pub max_reclaims: Option<u32>,
    pub reclaim: Reclaim,
    pub fencing: Fencing,
    pub lifetime: Option<Duration>,
    pub retention: Retention,
    pub requeue_order: RequeueOrder,
    pub manual_requeue: ManualRequeue,
    pub cancel_running: CancelRunning,
    pub clear_error_on_success: bool,
}

/// Settings for the admission and the order of jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionSettings {
    pub idempotency: Idempotency,
    pub external_ids: bool,
    /// Most bytes of a payload, a result, a progress note and a checkpoint, each.
    pub payload_max: u32,
    pub priority_order: bool,
    pub submit: SubmitMode,
    pub delayed_start: bool,
    pub max_queued: Option<u64>,
    /// Longest time from ready to running that the operators aim at. No rule depends on it.
    pub wait_target: Option<Duration>,
}

/// Retries after a failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    pub limit: u32,
    pub counts: RetryLimitUnit,
    pub backoff: Backoff,
    pub jitter: Jitter,
    pub honour_retry_after: bool,
    pub on_permanent: OnPermanent,
    pub on_exhausted: OnExhausted,
    pub on_timeout: OnFailure,
    pub on_system: OnFailure,
}

impl Retry {
    /// Returns the limit as a number of starts, without lost leases.
    pub fn starts_max(&self) -> u32 {
        match self.counts {
            RetryLimitUnit::Starts | RetryLimitUnit::Failures => self.limit,
            RetryLimitUnit::Retries => self.limit.saturating_add(1),
        }
    }

    /// Returns the limit as a number of retries after the first start.
    pub fn retries_max(&self) -> u32 {
        self.starts_max().saturating_sub(1)
    }
}

/// Detection of repeated submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency {
    pub scope: IdempotencyScope,
    /// `None`: a key never expires.
    pub window: Option<Duration>,
}

/// How long ended jobs are kept. `None`: without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub completed: Option<Duration>,
    pub failed: Option<Duration>,
    pub dead_letter: Option<Duration>,
    pub cancelled: Option<Duration>,
}

impl Retention {
    /// Returns the retention of a state; `None` also for a state that is not terminal.
    pub fn of(&self, state: StateKind) -> Option<Duration> {
        match state {
            StateKind::Completed => self.completed,
            StateKind::Failed => self.failed,
            StateKind::DeadLetter => self.dead_letter,
            StateKind::Cancelled => self.cancelled,
            StateKind::Pending
            | StateKind::Scheduled
            | StateKind::Delayed
            | StateKind::Running
            | StateKind::Retrying => None,
        }
    }
}
