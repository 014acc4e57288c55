//! Work: claims, settlements, heartbeats, children.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::enums::{OutcomeKind, Priority, ReportedCategory, State};
use crate::job::NewJob;
use crate::serde_util::{any_json, maybe_object, object};
use crate::tags::TagMap;
use crate::time::{Duration, Time};

/// `POST /v1/claims`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Served in this order.
    pub queues: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// 1 unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// How long to wait for work when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Duration>,
    /// Only jobs of these types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_timeout: Option<Duration>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Claimed {
    pub jobs: Vec<ClaimedJob>,
    /// The server's time: compare `expires_at` with this, not with a clock of the client.
    pub now: Time,
}

/// What a worker needs to know of a job, and no more.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClaimedJob {
    pub id: String,
    pub seq: u64,
    pub queue: String,
    #[serde(rename = "type")]
    pub job_type: String,
    pub state: State,
    pub priority: Priority,
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_attempt_id: Option<String>,
    #[serde(default, skip_serializing_if = "TagMap::is_empty")]
    pub tags: TagMap,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    pub created_at: Time,
    /// End of the execution timeout.
    pub deadline_at: Option<Time>,
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub checkpoint: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    pub lease: Lease,
    /// A failure now would end the job: its retries are used up.
    pub last_attempt: bool,
}

/// The right to a job: the token proves it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Lease {
    pub token: String,
    pub version: u64,
    pub expires_at: Option<Time>,
    /// What a heartbeat extends the lease by; absent where the lease is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

impl std::fmt::Debug for Lease {
    /// A token never reaches a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("version", &self.version)
            .field("expires_at", &self.expires_at)
            .field("duration", &self.duration)
            .finish_non_exhaustive()
    }
}

/// `POST /v1/jobs/{id}/complete`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens and results never reach a log")]
pub struct Complete {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// The last progress note; absent, the note of the last heartbeat stays.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
}

/// `POST /v1/jobs/{id}/fail`.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens never reach a log")]
pub struct Fail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    #[serde(deserialize_with = "object")]
    pub error: ReportedError,
}

/// A worker's own account of what went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReportedError {
    pub category: ReportedCategory,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// No retry, whatever the category.
    #[serde(rename = "final", default, skip_serializing_if = "Option::is_none")]
    pub unrecoverable: Option<bool>,
}

/// `POST /v1/jobs/{id}/heartbeat`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens never reach a log")]
pub struct Heartbeat {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub checkpoint: Option<Box<RawValue>>,
}

/// `POST /v1/jobs/{id}/snooze`.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens never reach a log")]
pub struct Snooze {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    pub delay: Duration,
}

/// `POST /v1/jobs/{id}/release`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens never reach a log")]
pub struct Release {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

/// The state that a job is in after a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobState {
    pub id: String,
    pub state: State,
    /// Only after a cancel that was asked for and not yet heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<bool>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Extended {
    pub id: String,
    pub state: State,
    pub expires_at: Option<Time>,
    pub cancel_requested: bool,
    /// A failure now would end the job.
    #[serde(default)]
    pub last_attempt: bool,
    /// The server's time. In `/v1/heartbeats` it stands beside `results` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Time>,
}

/// `POST /v1/settlements`; each member is read as a [`Settlement`].
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens never reach a log")]
pub struct Settlements<T = Settlement> {
    pub settlements: Vec<T>,
}

#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens never reach a log")]
pub struct Settlement {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    pub outcome: OutcomeKind,
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// The last progress note of a completed job.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub error: Option<ReportedError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
}

/// `POST /v1/heartbeats`; each member is read as a [`HeartbeatOf`].
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens never reach a log")]
pub struct Heartbeats<T = BatchHeartbeat> {
    pub heartbeats: Vec<T>,
}

#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens never reach a log")]
pub struct BatchHeartbeat {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub checkpoint: Option<Box<RawValue>>,
}

/// One verdict for each member of a batch, in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Results<T> {
    pub results: Vec<Verdict<T>>,
    /// The server's time; only in answers to heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Verdict<T> {
    Refused {
        id: Option<String>,
        code: String,
        detail: String,
        /// The field at fault, as a path inside of the member.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        field: Option<String>,
        /// The values of a closed set.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        allowed: Vec<String>,
    },
    Done(T),
}

/// `POST /v1/jobs/{id}/children`.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens and payloads never reach a log")]
pub struct Children<T = NewJob> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    pub jobs: Vec<T>,
    /// Runs once, after all children have completed.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub finally: Option<T>,
}

fn none<T>() -> Option<T> {
    None
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChildrenCreated {
    pub jobs: Vec<String>,
    pub finally: Option<String>,
}
