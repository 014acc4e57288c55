//! Jobs: handed in, looked at.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::enums::{AttemptOutcome, Category, Cause, Priority, State};
use crate::serde_util::{any_json, maybe_object, nullable};
use crate::settings::{Retention, Retry, Settings};
use crate::tags::{TagMap, Tags};
use crate::time::{Duration, Time};

/// A job that is handed in. Only the type is required.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    #[serde(rename = "type")]
    pub job_type: String,
    /// Of a job in `/children` or a workflow; elsewhere the path names the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// Ids of jobs, or `#ref` of others in the same batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_any: Option<Vec<String>>,
    /// Its name inside this batch.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<bool>,
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Duration>,
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>))]
    pub max_reclaims: Option<Option<u32>>,
}

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Submitted {
    pub id: String,
    pub seq: u64,
    /// `null`: the idempotency key has outlived its job.
    pub state: Option<State>,
    pub duplicate: bool,
    /// Of a duplicate: whether its payload is the same, byte for byte. Absent where the record of the earlier job is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_payload: Option<bool>,
}

/// What became of a batch, in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SubmittedBatch {
    pub jobs: Vec<Submitted>,
}

/// The record of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Job {
    pub id: String,
    pub seq: u64,
    pub queue: String,
    #[serde(rename = "type")]
    pub job_type: String,
    pub state: State,
    pub priority: Priority,
    pub effective_priority: Priority,
    /// Starts, the one under way included.
    pub attempt: u32,
    pub counters: Counters,
    /// Resolved settings of this job.
    pub policy: Settings,
    pub tags: TagMap,
    pub correlation_id: Option<String>,
    pub callback_url: Option<String>,
    pub idempotency_key: Option<String>,
    pub external_id: Option<String>,
    pub created_at: Time,
    pub updated_at: Time,
    pub run_at: Option<Time>,
    pub scheduled_at: Option<Time>,
    pub started_at: Option<Time>,
    pub first_started_at: Option<Time>,
    pub last_heartbeat_at: Option<Time>,
    pub attempt_ended_at: Option<Time>,
    pub completed_at: Option<Time>,
    pub lease: Option<LeaseView>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub checkpoint: Option<Box<RawValue>>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    pub error: Option<ErrorView>,
    pub after: Vec<String>,
    pub after_any: Vec<String>,
    pub waiting_on: usize,
    pub workflow: Option<String>,
    pub parent: Option<String>,
    pub requeued_from: Option<String>,
    pub requeued_as: Option<String>,
    pub cancel_requested: bool,
    /// Only with `?include=payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counters {
    pub starts: u32,
    pub failures: u32,
    pub retries_scheduled: u32,
    pub requeues: u32,
    pub reclaims: u32,
}

/// A lease as others see it: the token is only ever shown to its claimer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LeaseView {
    pub version: u64,
    pub expires_at: Option<Time>,
    /// When the execution timeout ends it, however often it is extended.
    pub deadline_at: Option<Time>,
    pub worker: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorView {
    pub category: Category,
    pub code: Option<String>,
    pub message: String,
    pub cause: Option<String>,
    pub at: Time,
}

/// A page of jobs, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Jobs {
    pub jobs: Vec<Job>,
    /// `cursor` of the next page; a page may be short, or empty, while there is one.
    pub next: Option<String>,
}

/// One start of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attempt {
    pub id: String,
    pub previous_id: Option<String>,
    pub number: u32,
    pub worker: Option<String>,
    pub lease_version: u64,
    pub started_at: Time,
    pub ended_at: Option<Time>,
    pub outcome: Option<AttemptOutcome>,
    pub error: Option<ErrorView>,
    pub next_delay: Option<Duration>,
}

/// Oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attempts {
    pub attempts: Vec<Attempt>,
}

/// One move from state to state; the first has no `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Transition {
    pub from: Option<State>,
    pub to: State,
    pub at: Time,
    pub cause: Cause,
}

/// Oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct History {
    pub history: Vec<Transition>,
}
