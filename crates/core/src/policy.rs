//! Settings of a queue and of its jobs, resolved. How they are overridden is in `patch.rs`, their values by profile in `profile.rs`.
//!
//! A queue has [`Settings`]: the [`Policy`] is frozen into each job at its creation, the [`Intake`] is read from the queue whenever it is used.

use std::fmt;

use crate::backoff::{Backoff, Jitter};
use crate::profile::Profile;
use crate::state::StateKind;
use crate::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub policy: Policy,
    pub intake: AdmissionSettings,
}

/// What a job carries with it for life.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub profile: Profile,
    pub retry: Retry,
    pub execution_timeout: Option<Duration>,
    /// How long a claim or heartbeat keeps the job from others.
    pub lease: Option<Duration>,
    pub on_lease_expiry: OnLeaseExpiry,
    /// `None` is unlimited.
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

/// What a queue asks of newcomers, and how it orders them.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionSettings {
    pub idempotency: Idempotency,
    pub external_ids: bool,
    /// Bound of a payload, and of a result, a progress note and a checkpoint.
    pub payload_max: u32,
    pub priority_order: bool,
    pub submit: SubmitMode,
    pub delayed_start: bool,
    pub max_queued: Option<u64>,
}

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
    /// The limit as a number of executions, were no lease ever lost.
    pub fn starts_max(&self) -> u32 {
        match self.counts {
            RetryLimitUnit::Starts | RetryLimitUnit::Failures => self.limit,
            RetryLimitUnit::Retries => self.limit.saturating_add(1),
        }
    }

    /// The limit as a number of retries after the first execution.
    pub fn retries_max(&self) -> u32 {
        self.starts_max().saturating_sub(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency {
    pub scope: IdempotencyScope,
    /// `None` never lapses.
    pub window: Option<Duration>,
}

/// How long ended jobs are kept; `None` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub completed: Option<Duration>,
    pub failed: Option<Duration>,
    pub dead_letter: Option<Duration>,
    pub cancelled: Option<Duration>,
}

impl Retention {
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

/// A closed set of words of the wire.
macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use string_enum;

string_enum!(
    /// What `retry.limit` is a number of.
    RetryLimitUnit { Starts = "starts", Failures = "failures", Retries = "retries" }
);
string_enum!(
    /// Where a permanent error sends the job.
    OnPermanent {
        Failed = "failed",
        DeadLetter = "dead_letter",
        /// Treated like any other error.
        Retry = "retry",
    }
);
string_enum!(
    /// Where a job goes that may not be retried any more.
    OnExhausted { DeadLetter = "dead_letter", Failed = "failed" }
);
string_enum!(
    /// Whether an execution timeout, or a failure of the system, is retried.
    OnFailure { Retry = "retry", Final = "final" }
);
string_enum!(
    /// What the end of a lease means.
    OnLeaseExpiry {
        /// Back in line; the next start counts against the limit, which may thereby be reached.
        ReclaimCounted = "reclaim_counted",
        /// Back in line, as often as it takes.
        ReclaimFree = "reclaim_free",
        /// A failure of category timeout.
        FailTimeout = "fail_timeout",
        /// A failure that is retried.
        FailRetryable = "fail_retryable",
    }
);
string_enum!(
    /// Who takes an orphan back: the passage of time, or the next claim.
    Reclaim { Eager = "eager", Lazy = "lazy" }
);
string_enum!(
    /// Whether a settlement must prove its lease.
    Fencing { Required = "required", Optional = "optional" }
);
string_enum!(
    /// Among which jobs an idempotency key is unique.
    IdempotencyScope {
        /// (queue, type, key)
        Type = "type",
        /// (queue, key)
        Queue = "queue",
        Global = "global",
        Off = "off",
    }
);
string_enum!(
    /// Where a job that comes back stands in line.
    RequeueOrder { Submission = "submission", Tail = "tail" }
);
string_enum!(
    /// Whether creating a job also submits it.
    SubmitMode { Auto = "auto", Explicit = "explicit" }
);
string_enum!(
    /// Whether a requeue revives the job itself or makes a copy.
    ManualRequeue { InPlace = "in_place", Clone = "clone" }
);
string_enum!(
    /// Whether a running job is cancelled at once, or asked to stop.
    CancelRunning { Cooperative = "cooperative", Immediate = "immediate" }
);
