//! Settings of queues and jobs. On the way in every field may be left out (absent = inherit), on the way out all are there.

use serde::{Deserialize, Serialize};

use crate::enums::*;
use crate::serde_util::{maybe_object, nullable};
use crate::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    #[serde(deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_lease_expiry: Option<OnLeaseExpiry>,
    /// `null` is unlimited.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>))]
    pub max_reclaims: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing: Option<Fencing>,
    #[serde(deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Idempotency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_ids: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Duration>,
    #[serde(deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_order: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_order: Option<RequeueOrder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit: Option<SubmitMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_start: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual_requeue: Option<ManualRequeue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_running: Option<CancelRunning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clear_error_on_success: Option<bool>,
    /// `null` is no bound.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub max_queued: Option<Option<u64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<RetryLimitUnit>,
    #[serde(deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    #[serde(deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub honour_retry_after: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_permanent: Option<OnPermanent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_system: Option<OnFailure>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<BackoffKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delays: Option<Vec<Duration>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Jitter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<JitterKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Idempotency {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<IdempotencyScope>,
    /// `0s` never lapses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Duration>,
}

/// How long ended jobs are kept; `0s` is for ever.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_null_are_not_the_same() {
        let read = |json: &str| serde_json::from_str::<Settings>(json).unwrap();
        assert_eq!(read("{}"), Settings::default());
        assert_eq!(read(r#"{"max_queued":null}"#).max_queued, Some(None));
        assert_eq!(read(r#"{"max_queued":5}"#).max_queued, Some(Some(5)));
        assert_eq!(serde_json::to_string(&read(r#"{"max_queued":null}"#)).unwrap(), r#"{"max_queued":null}"#);
        assert!(serde_json::from_str::<Settings>(r#"{"leese":"5s"}"#).is_err());
    }
}
