//! Jobs: submissions, records, attempts, history.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::enums::{AttemptOutcome, Category, Cause, JobAction, Priority, State};
use crate::schedule::JobSchedule;
use crate::serde_util::{any_json, maybe_object, nullable};
use crate::settings::{Retention, Retry, Settings};
use crate::tags::{TagMap, Tags};
use crate::time::{Duration, Time};

/// A new job. Only `type` is required.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// Kind of work, for workers that claim by type.
    #[serde(rename = "type")]
    pub job_type: String,
    /// Queue of a job in `/children` or in a workflow; elsewhere the path names the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Input of the work: any JSON, stored byte for byte. Absent: `null`.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// Input of the work as base64 with padding, instead of `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Urgency of the job. Absent: `normal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Time before which the job is not ready. Absent, or in the past: ready at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// Wait before the job is ready, instead of `run_at`. `0s` or absent: ready at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Key that makes a repeated submission return the first job. Absent or empty: no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Id chosen by the client, unique in the queue; only where `external_ids` is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Labels for searching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
    /// Id that connects the job with other systems; searchable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// URL that receives one signed POST when the job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// W3C trace context of the submitter, `00-<trace id>-<span id>-<flags>`. Absent: that of the
    /// header `traceparent`, for a single job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Jobs that must complete first: ids, or `#ref` of jobs in the same batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<String>>,
    /// Jobs of which one must end first, with any outcome: ids, or `#ref`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_any: Option<Vec<String>>,
    /// Name of the job inside this batch or workflow.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Whether the job is held until a client submits it. Absent: as the setting `submit` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<bool>,
    /// Overrides `retry` of the queue.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Overrides `execution_timeout` of the queue. `0s`: no limit. Absent: inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_timeout: Option<Duration>,
    /// Overrides `lease` of the queue. `0s`: until the execution timeout. Absent: inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// Overrides `lifetime` of the queue. `0s`: no limit. Absent: inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Duration>,
    /// Overrides `retention` of the queue.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Overrides `max_reclaims` of the queue. `null`: no limit. Absent: inherited.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>))]
    pub max_reclaims: Option<Option<u32>>,
}

/// Result of a submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Submitted {
    /// Id of the job.
    pub id: String,
    /// Sequence number of the job.
    pub seq: u64,
    /// State of the job; `null` for a duplicate whose first job has been removed.
    pub state: Option<State>,
    /// Whether the idempotency key was already used: `id` is the job of the first submission.
    pub duplicate: bool,
    /// For a duplicate: whether the payloads are equal, byte for byte. Absent if the first job has
    /// been removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_payload: Option<bool>,
}

/// Results of a batch, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SubmittedBatch {
    /// One result for each job.
    pub jobs: Vec<Submitted>,
}

/// The record of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Job {
    /// Id of the job: UUID version 4.
    pub id: String,
    /// Sequence number: the order of submission.
    pub seq: u64,
    /// Queue of the job.
    pub queue: String,
    /// Kind of work.
    #[serde(rename = "type")]
    pub job_type: String,
    /// State of the job.
    pub state: State,
    /// Priority that the client asked for.
    pub priority: Priority,
    /// Priority that orders the job: its own, or that of a more urgent dependency.
    pub effective_priority: Priority,
    /// Starts so far, the running one included.
    pub attempt: u32,
    /// Counters of the job.
    pub counters: Counters,
    /// Resolved settings of this job, as of its creation.
    pub policy: Settings,
    /// Labels of the job.
    pub tags: TagMap,
    /// Id that connects the job with other systems.
    pub correlation_id: Option<String>,
    /// URL that receives one signed POST when the job ends.
    pub callback_url: Option<String>,
    /// W3C trace context of the submitter.
    #[serde(default)]
    pub traceparent: Option<String>,
    /// Idempotency key of the submission.
    pub idempotency_key: Option<String>,
    /// Id chosen by the client.
    pub external_id: Option<String>,
    /// When the job was created.
    pub created_at: Time,
    /// When the state last changed.
    pub updated_at: Time,
    /// Time before which the job is not ready; `null` if it is ready, running or ended.
    pub run_at: Option<Time>,
    /// When the job last became ready.
    pub scheduled_at: Option<Time>,
    /// When the last attempt started.
    pub started_at: Option<Time>,
    /// When the first attempt started.
    pub first_started_at: Option<Time>,
    /// When the last heartbeat of the last attempt arrived.
    pub last_heartbeat_at: Option<Time>,
    /// When the last attempt ended; `null` while the job runs.
    pub attempt_ended_at: Option<Time>,
    /// When the job ended, in any terminal state.
    pub completed_at: Option<Time>,
    /// Lease of a running job.
    pub lease: Option<LeaseView>,
    /// Last progress note of the worker.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
    /// Last checkpoint of a worker; kept for the next attempt.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub checkpoint: Option<Box<RawValue>>,
    /// Result of a completed job.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// Last failure.
    pub error: Option<ErrorView>,
    /// Ids of jobs that must complete first.
    pub after: Vec<String>,
    /// Ids of jobs of which one must end first.
    pub after_any: Vec<String>,
    /// Number of jobs it still waits for.
    pub waiting_on: usize,
    /// Workflow of the job.
    pub workflow: Option<String>,
    /// Job that created this one.
    pub parent: Option<String>,
    /// Job of which this one is a clone.
    pub requeued_from: Option<String>,
    /// Clone of this job.
    pub requeued_as: Option<String>,
    /// Whether a cancel waits for the worker to stop.
    pub cancel_requested: bool,
    /// Schedule that submitted the job.
    #[serde(default)]
    pub schedule: Option<JobSchedule>,
    /// Actions of operators that the state of the job allows now.
    #[serde(default)]
    pub actions: Vec<JobAction>,
    /// Input of the work; only with `?include=payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// Input of the work in base64, for a binary payload; only with `?include=payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
}

/// Counters of a job. A requeue with `reset` sets them to zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counters {
    /// Claims, without those that were snoozed or released.
    pub starts: u32,
    /// Failed attempts.
    pub failures: u32,
    /// Retries that were scheduled after a failure.
    pub retries_scheduled: u32,
    /// Retries that became ready.
    pub requeues: u32,
    /// Expired leases after which the job was ready again.
    pub reclaims: u32,
}

/// A lease without its token, which only the claiming worker gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LeaseView {
    /// Lease version: grows with every claim of the job.
    pub version: u64,
    /// When the lease expires without a heartbeat; `null` if it does not expire.
    pub expires_at: Option<Time>,
    /// When the execution timeout ends the run; heartbeats do not extend it.
    pub deadline_at: Option<Time>,
    /// Name of the worker.
    pub worker: Option<String>,
}

/// A recorded failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorView {
    /// Category of the failure.
    pub category: Category,
    /// Code for programs.
    pub code: Option<String>,
    /// Message for people.
    pub message: String,
    /// Underlying cause, such as a stack trace.
    pub cause: Option<String>,
    /// When the failure was recorded.
    pub at: Time,
}

/// A page of jobs, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Jobs {
    /// Jobs of this page; a page may be short or empty although `next` is set.
    pub jobs: Vec<Job>,
    /// `cursor` of the next page; `null` after the last one.
    pub next: Option<String>,
}

/// One start of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attempt {
    /// Id of the attempt.
    pub id: String,
    /// Id of the attempt before it.
    pub previous_id: Option<String>,
    /// Starts at that time, this one included; may repeat after a snooze or a release.
    pub number: u32,
    /// Name of the worker.
    pub worker: Option<String>,
    /// Lease version of the attempt.
    pub lease_version: u64,
    /// When the attempt started.
    pub started_at: Time,
    /// When the attempt ended; `null` while it runs.
    pub ended_at: Option<Time>,
    /// How the attempt ended; `null` while it runs.
    pub outcome: Option<AttemptOutcome>,
    /// Failure that ended the attempt.
    pub error: Option<ErrorView>,
    /// Wait that was scheduled before the next attempt.
    pub next_delay: Option<Duration>,
}

/// The last 100 attempts of a job, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attempts {
    /// The attempts.
    pub attempts: Vec<Attempt>,
}

/// One transition between states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Transition {
    /// State before; `null` for the creation.
    pub from: Option<State>,
    /// State after.
    pub to: State,
    /// When the state changed.
    pub at: Time,
    /// Why the state changed.
    pub cause: Cause,
}

/// Transitions of a job, oldest first: the creation and the last 99.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct History {
    /// The transitions.
    pub history: Vec<Transition>,
}
