//! Settings of queues and jobs: every field is optional in a request, all are set in a response.
//!
//! One macro defines the types and the table [`Settings::FIELDS`], from which `docs/settings.md` is
//! generated. In a doc comment the first paragraph is the meaning; further ones are special values.

use serde::{Deserialize, Serialize};

use crate::enums::*;
use crate::serde_util::{maybe_object, nullable};
use crate::time::Duration;

/// One setting of the table.
#[derive(Clone, Copy, Debug)]
pub struct SettingField {
    pub name: &'static str,
    /// Lines of the doc comment.
    pub docs: &'static [&'static str],
    /// Type of the value, for people.
    pub kind: &'static str,
    /// Values of a closed set; empty for other types.
    pub values: &'static [&'static str],
    /// Settings of an object; empty for a single value.
    pub fields: &'static [SettingField],
}

/// A type that a setting may have.
trait SettingValue {
    const KIND: &'static str;
    const VALUES: &'static [&'static str] = &[];
    const FIELDS: &'static [SettingField] = &[];
}

macro_rules! kinds {
    ($($type:ty: $kind:literal),+) => {
        $(impl SettingValue for $type {
            const KIND: &'static str = $kind;
        })+
    };
}

kinds!(
    bool: "boolean", u32: "number", u64: "number", f64: "number", Duration: "duration",
    Vec<Duration>: "list of durations", Option<u32>: "number or null", Option<u64>: "number or null",
    Option<Duration>: "duration or null"
);

macro_rules! closed_sets {
    ($($type:ty),+) => {
        $(impl SettingValue for $type {
            const KIND: &'static str = "string";
            const VALUES: &'static [&'static str] = Self::WORDS;
        })+
    };
}

closed_sets!(RetryLimitUnit, BackoffKind, JitterKind, OnPermanent, OnExhausted, OnFailure, OnLeaseExpiry, Reclaim);
closed_sets!(Fencing, IdempotencyScope, RequeueOrder, SubmitMode, ManualRequeue, CancelRunning);

/// Defines an object of settings and its rows of the table.
macro_rules! settings {
    ($(#[doc = $doc:tt])+ $name:ident {
        $($(#[doc = $field_doc:tt])+
        $(#[serde($($serde:tt)+)])? $(#[schema($($schema:tt)+)])?
        $field:ident: $type:ty,)+
    }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[doc = $field_doc])+
            #[doc = ""]
            #[doc = " Absent: inherited; by a job from its queue, by a queue from its profile."]
            #[serde(skip_serializing_if = "Option::is_none" $(, $($serde)+)?)]
            $(#[cfg_attr(feature = "schema", schema($($schema)+))])?
            pub $field: Option<$type>,)+
        }

        impl SettingValue for $name {
            const KIND: &'static str = "object";
            const FIELDS: &'static [SettingField] = &[$(SettingField {
                name: stringify!($field),
                docs: &[$($field_doc),+],
                kind: <$type as SettingValue>::KIND,
                values: <$type as SettingValue>::VALUES,
                fields: <$type as SettingValue>::FIELDS,
            }),+];
        }
    };
}

settings!(
    /// Settings of a queue. A response has all of them, resolved.
    Settings {
        /// Retries after a failed attempt.
        #[serde(deserialize_with = "maybe_object")]
        retry: Retry,
        /// Longest run of one attempt. Heartbeats do not extend it.
        ///
        /// `0s`: no limit.
        execution_timeout: Duration,
        /// Time after a claim or a heartbeat during which no other worker can claim the job.
        ///
        /// `0s`: the lease lasts until the execution timeout.
        lease: Duration,
        /// What the expiry of a lease does.
        on_lease_expiry: OnLeaseExpiry,
        /// Lost leases after which the next lost lease ends the job as `retry.on_exhausted` says.
        ///
        /// `null`: no limit.
        #[serde(deserialize_with = "nullable")]
        #[schema(value_type = Option<u32>)]
        max_reclaims: Option<u32>,
        /// When a job with an expired lease is ready again.
        reclaim: Reclaim,
        /// Whether a worker must prove its lease with the lease token.
        fencing: Fencing,
        /// Detection of repeated submissions.
        #[serde(deserialize_with = "maybe_object")]
        idempotency: Idempotency,
        /// Whether a new job may bring an id of its own, unique in the queue.
        external_ids: bool,
        /// Longest time from the submission of a job to its end; then it ends as `dead_letter`.
        ///
        /// `0s`: no limit.
        lifetime: Duration,
        /// How long the records of ended jobs are kept.
        #[serde(deserialize_with = "maybe_object")]
        retention: Retention,
        /// Most bytes of a payload, a result, a progress note and a checkpoint, each.
        payload_max: u64,
        /// Whether claims take jobs by priority first. Otherwise the order of the queue decides.
        priority_order: bool,
        /// Position of a job that becomes ready again, among jobs of equal priority.
        requeue_order: RequeueOrder,
        /// Whether creating a job also submits it.
        submit: SubmitMode,
        /// Whether new jobs may have `run_at` or `delay`.
        delayed_start: bool,
        /// What a requeue by a client does.
        manual_requeue: ManualRequeue,
        /// How a running job is cancelled.
        cancel_running: CancelRunning,
        /// Whether the success of a later attempt removes the recorded error.
        clear_error_on_success: bool,
        /// Most waiting jobs: pending jobs that are not held, scheduled, delayed and retrying jobs.
        /// Further submissions are refused.
        ///
        /// `null` or `0`: no limit.
        #[serde(deserialize_with = "nullable")]
        #[schema(value_type = Option<u64>)]
        max_queued: Option<u64>,
        /// Time from ready to running that the operators aim at. The server reports older ready
        /// jobs; no other rule depends on it.
        ///
        /// `null` or `0s`: no target.
        #[serde(deserialize_with = "nullable")]
        #[schema(value_type = Option<Duration>)]
        wait_target: Option<Duration>,
    }
);

impl Settings {
    /// All settings, in the order of this page.
    pub const FIELDS: &'static [SettingField] = <Self as SettingValue>::FIELDS;
}

settings!(
    /// Retries after a failed attempt.
    Retry {
        /// Number of starts, failures or retries, as `retry.counts` says, after which the job ends.
        ///
        /// `0`: no retries; only where `retry.counts` is `retries`.
        limit: u32,
        /// Unit of `retry.limit`.
        counts: RetryLimitUnit,
        /// Wait before a retry.
        #[serde(deserialize_with = "maybe_object")]
        backoff: Backoff,
        /// Randomness of the wait.
        #[serde(deserialize_with = "maybe_object")]
        jitter: Jitter,
        /// Whether `retry_after` of a reported failure replaces the backoff, up to `backoff.cap`.
        honour_retry_after: bool,
        /// What a permanent failure, or one that the worker reports as `final`, does.
        on_permanent: OnPermanent,
        /// Terminal state of a job whose retries are used up.
        on_exhausted: OnExhausted,
        /// Whether failures of category timeout are retried.
        on_timeout: OnFailure,
        /// Whether failures of category system are retried.
        on_system: OnFailure,
    }
);

settings!(
    /// Wait before a retry.
    Backoff {
        /// Formula of the wait.
        kind: BackoffKind,
        /// Wait before the first retry.
        ///
        /// `0s`: no wait.
        base: Duration,
        /// Growth per retry, 1 to 1000; only for `exponential`.
        multiplier: f64,
        /// Longest wait.
        ///
        /// `0s`: no limit.
        cap: Duration,
        /// Waits of `list`, one for each retry; the last entry repeats. At most 100 entries.
        ///
        /// `[]`: no wait.
        delays: Vec<Duration>,
    }
);

settings!(
    /// Randomness of the wait before a retry.
    Jitter {
        /// Distribution of the wait.
        kind: JitterKind,
        /// Largest deviation of `symmetric`, as a fraction of the wait: 0 to 1.
        factor: f64,
    }
);

settings!(
    /// Detection of repeated submissions.
    Idempotency {
        /// Jobs among which an idempotency key is unique.
        scope: IdempotencyScope,
        /// Time after which a key may be used again.
        ///
        /// `0s`: never.
        window: Duration,
    }
);

settings!(
    /// How long the records of ended jobs are kept.
    Retention {
        /// How long a completed job is kept.
        ///
        /// `0s`: without limit.
        completed: Duration,
        /// How long a failed job is kept.
        ///
        /// `0s`: without limit.
        failed: Duration,
        /// How long a dead-lettered job is kept.
        ///
        /// `0s`: without limit.
        dead_letter: Duration,
        /// How long a cancelled job is kept.
        ///
        /// `0s`: without limit.
        cancelled: Duration,
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_null_differ() {
        let read = |json: &str| serde_json::from_str::<Settings>(json).unwrap();
        assert_eq!(read("{}"), Settings::default());
        assert_eq!(read(r#"{"max_queued":null}"#).max_queued, Some(None));
        assert_eq!(read(r#"{"max_queued":5}"#).max_queued, Some(Some(5)));
        assert_eq!(serde_json::to_string(&read(r#"{"max_queued":null}"#)).unwrap(), r#"{"max_queued":null}"#);
        assert!(serde_json::from_str::<Settings>(r#"{"leese":"5s"}"#).is_err());
    }
}
