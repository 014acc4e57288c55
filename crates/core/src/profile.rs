//! Settings of the six profiles: `standard`, and one for each specification.

use crate::backoff::{Backoff, BackoffKind, Jitter, JitterKind};
use crate::limits::PAYLOAD_BYTES_DEFAULT;
use crate::policy::*;
use crate::time::Duration;

pub use longshore_types::Profile;

impl Settings {
    /// Returns the settings of a profile.
    pub fn of_profile(profile: Profile) -> Self {
        match profile {
            Profile::Standard => standard(),
            Profile::Gopherqueue => gopherqueue(),
            Profile::Taskharbor => taskharbor(),
            Profile::Ocypod => ocypod(),
            Profile::Weave => weave(),
            Profile::Document => document(),
        }
    }
}

const WEEK: Option<Duration> = Some(Duration::from_days(7));

fn gopherqueue() -> Settings {
    Settings {
        policy: Policy {
            profile: Profile::Gopherqueue,
            retry: Retry {
                limit: 3,
                counts: RetryLimitUnit::Starts,
                backoff: exponential(Duration::from_secs(1), Duration::from_hours(1)),
                jitter: NO_JITTER,
                honour_retry_after: true,
                on_permanent: OnPermanent::Failed,
                on_exhausted: OnExhausted::DeadLetter,
                on_timeout: OnFailure::Retry,
                on_system: OnFailure::Retry,
            },
            execution_timeout: Some(Duration::from_mins(30)),
            lease: Some(Duration::from_mins(5)),
            on_lease_expiry: OnLeaseExpiry::ReclaimCounted,
            max_reclaims: None,
            reclaim: Reclaim::Eager,
            fencing: Fencing::Required,
            lifetime: WEEK,
            retention: Retention { completed: WEEK, failed: WEEK, dead_letter: None, cancelled: WEEK },
            requeue_order: RequeueOrder::Submission,
            manual_requeue: ManualRequeue::Clone,
            cancel_running: CancelRunning::Cooperative,
            clear_error_on_success: false,
        },
        admission: AdmissionSettings {
            idempotency: Idempotency { scope: IdempotencyScope::Type, ..ADMISSION.idempotency },
            ..ADMISSION
        },
    }
}

fn standard() -> Settings {
    let mut settings = gopherqueue();
    let policy = &mut settings.policy;
    policy.profile = Profile::Standard;
    policy.retry.jitter = Jitter { kind: JitterKind::Symmetric, factor: 0.1 };
    policy.lease = Some(Duration::from_secs(30));
    // A job that is scheduled for next month must run.
    policy.lifetime = None;
    policy.manual_requeue = ManualRequeue::InPlace;
    settings
}

fn taskharbor() -> Settings {
    Settings {
        policy: Policy {
            profile: Profile::Taskharbor,
            retry: Retry {
                limit: 25,
                counts: RetryLimitUnit::Failures,
                backoff: exponential(Duration::from_millis(200), Duration::from_secs(5)),
                jitter: Jitter { kind: JitterKind::Symmetric, factor: 0.2 },
                honour_retry_after: false,
                on_permanent: OnPermanent::DeadLetter,
                on_exhausted: OnExhausted::DeadLetter,
                on_timeout: OnFailure::Retry,
                on_system: OnFailure::Retry,
            },
            execution_timeout: None,
            lease: Some(Duration::from_secs(30)),
            on_lease_expiry: OnLeaseExpiry::ReclaimFree,
            max_reclaims: None,
            reclaim: Reclaim::Eager,
            fencing: Fencing::Required,
            lifetime: None,
            retention: KEEP,
            requeue_order: RequeueOrder::Tail,
            manual_requeue: ManualRequeue::InPlace,
            cancel_running: CancelRunning::Cooperative,
            clear_error_on_success: false,
        },
        admission: AdmissionSettings {
            idempotency: Idempotency { scope: IdempotencyScope::Queue, window: None },
            priority_order: false,
            ..ADMISSION
        },
    }
}

fn ocypod() -> Settings {
    let expires_after = Some(Duration::from_mins(5));
    Settings {
        policy: Policy {
            profile: Profile::Ocypod,
            retry: Retry {
                limit: 0,
                counts: RetryLimitUnit::Retries,
                backoff: Backoff {
                    kind: BackoffKind::List,
                    base: Duration::from_secs(1),
                    multiplier: 2.0,
                    cap: None,
                    delays: Vec::new(),
                },
                jitter: NO_JITTER,
                honour_retry_after: false,
                on_permanent: OnPermanent::Retry,
                on_exhausted: OnExhausted::Failed,
                on_timeout: OnFailure::Retry,
                on_system: OnFailure::Retry,
            },
            execution_timeout: Some(Duration::from_mins(5)),
            lease: None,
            on_lease_expiry: OnLeaseExpiry::FailTimeout,
            max_reclaims: None,
            reclaim: Reclaim::Eager,
            fencing: Fencing::Optional,
            lifetime: None,
            retention: Retention {
                completed: expires_after,
                failed: expires_after,
                dead_letter: expires_after,
                cancelled: expires_after,
            },
            requeue_order: RequeueOrder::Tail,
            manual_requeue: ManualRequeue::InPlace,
            cancel_running: CancelRunning::Immediate,
            clear_error_on_success: false,
        },
        admission: AdmissionSettings { payload_max: 256 << 10, priority_order: false, ..ADMISSION },
    }
}

fn weave() -> Settings {
    Settings {
        policy: Policy {
            profile: Profile::Weave,
            retry: Retry {
                limit: 3,
                counts: RetryLimitUnit::Retries,
                backoff: exponential(Duration::from_millis(500), Duration::from_secs(30)),
                jitter: Jitter { kind: JitterKind::Full, factor: 0.1 },
                honour_retry_after: false,
                on_permanent: OnPermanent::Failed,
                on_exhausted: OnExhausted::Failed,
                on_timeout: OnFailure::Retry,
                on_system: OnFailure::Retry,
            },
            execution_timeout: Some(Duration::from_mins(5)),
            lease: Some(Duration::from_secs(5)),
            on_lease_expiry: OnLeaseExpiry::ReclaimFree,
            max_reclaims: None,
            reclaim: Reclaim::Lazy,
            fencing: Fencing::Required,
            lifetime: None,
            retention: KEEP,
            requeue_order: RequeueOrder::Tail,
            manual_requeue: ManualRequeue::Clone,
            cancel_running: CancelRunning::Immediate,
            clear_error_on_success: false,
        },
        admission: AdmissionSettings { external_ids: true, ..ADMISSION },
    }
}

fn document() -> Settings {
    Settings {
        policy: Policy {
            profile: Profile::Document,
            retry: Retry {
                limit: 3,
                counts: RetryLimitUnit::Retries,
                backoff: Backoff {
                    kind: BackoffKind::Constant,
                    base: Duration::from_secs(1),
                    multiplier: 2.0,
                    cap: None,
                    delays: Vec::new(),
                },
                jitter: NO_JITTER,
                honour_retry_after: false,
                on_permanent: OnPermanent::Failed,
                on_exhausted: OnExhausted::Failed,
                on_timeout: OnFailure::Retry,
                on_system: OnFailure::Retry,
            },
            execution_timeout: None,
            lease: Some(Duration::from_secs(30)),
            on_lease_expiry: OnLeaseExpiry::FailRetryable,
            max_reclaims: None,
            reclaim: Reclaim::Eager,
            fencing: Fencing::Required,
            lifetime: None,
            retention: KEEP,
            requeue_order: RequeueOrder::Tail,
            manual_requeue: ManualRequeue::Clone,
            cancel_running: CancelRunning::Immediate,
            clear_error_on_success: true,
        },
        admission: AdmissionSettings {
            submit: SubmitMode::Explicit,
            delayed_start: false,
            priority_order: false,
            ..ADMISSION
        },
    }
}

const ADMISSION: AdmissionSettings = AdmissionSettings {
    idempotency: Idempotency { scope: IdempotencyScope::Off, window: Some(Duration::from_hours(24)) },
    external_ids: false,
    payload_max: PAYLOAD_BYTES_DEFAULT,
    priority_order: true,
    submit: SubmitMode::Auto,
    delayed_start: true,
    max_queued: None,
    wait_target: None,
};

/// The factor applies if a queue turns symmetric jitter on.
const NO_JITTER: Jitter = Jitter { kind: JitterKind::None, factor: 0.1 };

const KEEP: Retention = Retention { completed: None, failed: None, dead_letter: None, cancelled: None };

fn exponential(base: Duration, cap: Duration) -> Backoff {
    Backoff { kind: BackoffKind::Exponential, base, multiplier: 2.0, cap: Some(cap), delays: Vec::new() }
}
