//! Requests of workers: claims, settlements, heartbeats, children.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::enums::{OutcomeKind, Priority, ReportedCategory, State, WorkerDirective};
use crate::job::NewJob;
use crate::serde_util::{any_json, maybe_object, object};
use crate::tags::TagMap;
use crate::time::{Duration, Time};

/// Claims jobs: `POST /v1/claims`. Each member of `settle` is parsed as a [`Settlement`].
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens are never logged")]
pub struct Claim<T = Settlement> {
    /// Queues to claim from, in this order.
    pub queues: Vec<String>,
    /// Settlements of earlier claims, at most 1000. They are applied before the claim, in the same
    /// commit. With a settlement the claim does not wait. Absent: none.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub settle: Option<Vec<T>>,
    /// Name of the worker: the directive of the response is for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Version of the worker program, for people; at most 128 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Most jobs of this claim: 1 to 1000. Absent: 1. The job with which payloads and checkpoints
    /// reach 16 MiB is the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// How long to wait for a job if none is ready, at most 60s. `0s` or absent: no wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Duration>,
    /// Claims only jobs of these types, which the worker is listed with. Absent: all types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// Lease of the claimed jobs, instead of their setting; above `0s`. Absent: their setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// Shortens the execution timeout of the claimed jobs. `0s` or absent: their setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_timeout: Option<Duration>,
}

impl<T> Default for Claim<T> {
    fn default() -> Self {
        Self {
            queues: Vec::new(),
            settle: None,
            worker: None,
            version: None,
            limit: None,
            wait: None,
            types: None,
            lease: None,
            execution_timeout: None,
        }
    }
}

/// Result of a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Claimed {
    /// One verdict for each settlement of the claim, in the same order; absent without `settle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<Verdict<JobState>>>,
    /// Claimed jobs; empty if none became ready, or if the directive is not `run`.
    pub jobs: Vec<ClaimedJob>,
    /// What the server tells the worker to do; `run` for a claim without a worker.
    #[serde(default = "run")]
    pub directive: WorkerDirective,
    /// Time of the server: compare `expires_at` with it, not with the clock of the client.
    pub now: Time,
}

/// A job as its worker gets it: what the work needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClaimedJob {
    /// Id of the job.
    pub id: String,
    /// Sequence number of the job.
    pub seq: u64,
    /// Queue of the job.
    pub queue: String,
    /// Kind of work.
    #[serde(rename = "type")]
    pub job_type: String,
    /// State of the job: `running`.
    pub state: State,
    /// Priority of the job.
    pub priority: Priority,
    /// Starts so far, this one included.
    pub attempt: u32,
    /// Id of this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// Id of the attempt before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_attempt_id: Option<String>,
    /// Labels of the job.
    #[serde(default, skip_serializing_if = "TagMap::is_empty")]
    pub tags: TagMap,
    /// Id that connects the job with other systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// W3C trace context of the submitter. A first attempt continues it; a retry, which has a
    /// `previous_attempt_id`, begins a trace with a link to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Idempotency key of the submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// When the job was created.
    pub created_at: Time,
    /// When the execution timeout ends the run; `null` without one.
    pub deadline_at: Option<Time>,
    /// Last checkpoint of an earlier attempt.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub checkpoint: Option<Box<RawValue>>,
    /// Workflow of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Input of the work; absent for a binary payload.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// Input of the work in base64, for a binary payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Lease of this claim.
    pub lease: Lease,
    /// Whether a failure of this attempt ends the job.
    pub last_attempt: bool,
}

/// The exclusive right to a job until a time. The token proves it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Lease {
    /// Lease token: required by every further request for this run.
    pub token: String,
    /// Lease version, for fencing in other systems: grows with every claim of the job.
    pub version: u64,
    /// When the lease expires without a heartbeat; `null` if it does not expire.
    pub expires_at: Option<Time>,
    /// Time that a heartbeat extends the lease by; absent where the lease is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
}

impl std::fmt::Debug for Lease {
    /// Hides the token: tokens are never logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("version", &self.version)
            .field("expires_at", &self.expires_at)
            .field("duration", &self.duration)
            .finish_non_exhaustive()
    }
}

/// Ends a job with success: `POST /v1/jobs/{id}/complete`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens and results are never logged")]
pub struct Complete {
    /// Lease token of the claim. Absent: only where `fencing` is `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Result of the work. Absent: none.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// Progress note. Absent: the note of the last heartbeat stays.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
}

/// Reports a failed attempt: `POST /v1/jobs/{id}/fail`.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens are never logged")]
pub struct Fail {
    /// Lease token of the claim. Absent: only where `fencing` is `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// What went wrong.
    #[serde(deserialize_with = "object")]
    pub error: ReportedError,
}

/// A failure as its worker reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReportedError {
    /// Category of the failure: decides about the retry.
    pub category: ReportedCategory,
    /// Message for people; longer than 8192 characters it is truncated. Absent: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Code for programs. Absent: none, or `permanent` for a permanent failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Underlying cause, such as a stack trace; longer than 8192 characters it is truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Wait before the retry; only where `retry.honour_retry_after` is on. Absent: the backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// No retry, for any category. Absent: false.
    #[serde(rename = "final", default, skip_serializing_if = "Option::is_none")]
    pub unrecoverable: Option<bool>,
}

/// Extends a lease: `POST /v1/jobs/{id}/heartbeat`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens are never logged")]
pub struct Heartbeat {
    /// Lease token of the claim. Absent: only where `fencing` is `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Progress note. Absent: the note of the last heartbeat stays.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
    /// Data for a later attempt. Absent: the last checkpoint stays.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub checkpoint: Option<Box<RawValue>>,
}

/// Makes a job ready again after a delay: `POST /v1/jobs/{id}/snooze`.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens are never logged")]
pub struct Snooze {
    /// Lease token of the claim. Absent: only where `fencing` is `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Wait before the job is ready again.
    pub delay: Duration,
}

/// Makes a job ready again at once: `POST /v1/jobs/{id}/release`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens are never logged")]
pub struct Release {
    /// Lease token of the claim. Absent: only where `fencing` is `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

/// State of a job after a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobState {
    /// State of the job.
    pub state: State,
    /// Id of the job.
    pub id: String,
    /// Present and true while a cancel waits for the worker to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<bool>,
}

/// Result of a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Extended {
    /// Id of the job.
    pub id: String,
    /// State of the job: `running`.
    pub state: State,
    /// When the lease expires now; `null` if it does not expire.
    pub expires_at: Option<Time>,
    /// Whether the worker should stop: the job is to be cancelled.
    pub cancel_requested: bool,
    /// Whether a failure of this attempt ends the job.
    #[serde(default)]
    pub last_attempt: bool,
    /// What the server tells the worker to do. In `/v1/heartbeats` it is beside `results` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive: Option<WorkerDirective>,
    /// Time of the server. In `/v1/heartbeats` it is beside `results` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Time>,
}

/// Ends several leases: `POST /v1/settlements`. Each member is parsed as a [`Settlement`].
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens are never logged")]
pub struct Settlements<T = Settlement> {
    /// The settlements.
    pub settlements: Vec<T>,
}

/// One settlement of a batch.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens are never logged")]
pub struct Settlement {
    /// Id of the job.
    pub id: String,
    /// Lease token of the claim. Absent: only where `fencing` is `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// How the lease ends.
    pub outcome: OutcomeKind,
    /// Result of the work. Absent: none.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// Progress note. Absent: the note of the last heartbeat stays.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
    /// What went wrong; required for `fail`, refused for other outcomes.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub error: Option<ReportedError>,
    /// Wait before the job is ready again; required for `snooze`, refused for other outcomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
}

/// Extends several leases: `POST /v1/heartbeats`. Each member is parsed as a [`BatchHeartbeat`].
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens are never logged")]
pub struct Heartbeats<T = BatchHeartbeat> {
    /// The heartbeats.
    pub heartbeats: Vec<T>,
}

/// One heartbeat of a batch.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens are never logged")]
pub struct BatchHeartbeat {
    /// Id of the job.
    pub id: String,
    /// Lease token of the claim. Absent: only where `fencing` is `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Progress note. Absent: the note of the last heartbeat stays.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub progress: Option<Box<RawValue>>,
    /// Data for a later attempt. Absent: the last checkpoint stays.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub checkpoint: Option<Box<RawValue>>,
}

/// One verdict for each member of a batch, in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Results<T> {
    /// One verdict for each member.
    pub results: Vec<Verdict<T>>,
    /// What the server tells the worker to do; only for heartbeats. Several workers: the strictest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive: Option<WorkerDirective>,
    /// Time of the server; only for heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Time>,
}

/// Result of one member of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Verdict<T> {
    /// The member was refused and changed nothing.
    Refused {
        /// Id of the job, as far as it could be read.
        id: Option<String>,
        /// Error code.
        code: String,
        /// What was wrong, for people.
        detail: String,
        /// Field at fault, as a path inside the member.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        field: Option<String>,
        /// Allowed values of the field, if they are a closed set.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        allowed: Vec<String>,
    },
    /// The member was applied.
    Done(T),
}

/// Creates jobs from a running job: `POST /v1/jobs/{id}/children`.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_debug_implementations, reason = "lease tokens and payloads are never logged")]
pub struct Children<T = NewJob> {
    /// Lease token of the claim. Absent: only where `fencing` is `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The new jobs.
    pub jobs: Vec<T>,
    /// Job that runs after all children have completed. Absent: none.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub finally: Option<T>,
}

fn run() -> WorkerDirective {
    WorkerDirective::Run
}

fn none<T>() -> Option<T> {
    None
}

/// Ids of new children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChildrenCreated {
    /// Ids of the children, in the order of the request.
    pub jobs: Vec<String>,
    /// Id of the job that runs after them.
    pub finally: Option<String>,
}
