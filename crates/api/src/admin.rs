//! Commands of operators and clients to jobs.

use serde::{Deserialize, Serialize};

use crate::enums::{BulkAction, Priority};
use crate::serde_util::{maybe_object, nullable, object};
use crate::states::States;
use crate::tags::Tags;
use crate::time::Time;

/// Changes fields of a job: `PATCH /v1/jobs/{id}`. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Patch {
    /// New priority. Refused while the job runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// New type. Refused while the job runs.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    /// Replaces all tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
    /// New correlation id. `null`: removes it.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub correlation_id: Option<Option<String>>,
    /// New callback URL. `null`: removes it.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub callback_url: Option<Option<String>>,
    /// New retry limit.
    #[serde(deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub retry: Option<PatchRetry>,
}

/// The part of `retry` that can be changed after the submission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PatchRetry {
    /// New `retry.limit`. A waiting retry beyond the limit ends the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Cancels a job: `POST /v1/jobs/{id}/cancel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Cancel {
    /// Message of the recorded error. Absent: `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ends a running job at once, without regard to `cancel_running`. Absent: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// Runs an ended job again: `POST /v1/jobs/{id}/requeue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Requeue {
    /// Sets all counters to zero and removes the checkpoint. Absent: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<bool>,
    /// Time before which the job is not ready. Absent: ready at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
}

/// Ends a job as a dead letter: `POST /v1/jobs/{id}/dead-letter`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DeadLetter {
    /// Message of the recorded error. Absent: `dead-lettered by an operator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Body of a request without parameters: empty, or `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyBody {}

/// Applies one action to many jobs: `POST /v1/jobs/bulk`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// What is done to each matching job.
    pub action: BulkAction,
    /// Which jobs match.
    #[serde(deserialize_with = "object")]
    pub filter: BulkFilter,
    /// Most jobs of this call: 1 to 1000. Absent: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Only counts the matching jobs. Absent: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// Conditions of a bulk operation. All of them must hold; at least one is required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BulkFilter {
    /// Name of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// One or several states, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<States>,
    /// Type of the job.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    /// A tag: its key, or `key:value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Code of the last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}

/// Result of a bulk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BulkResult {
    /// Jobs that matched.
    pub matched: u64,
    /// Jobs that were changed.
    pub changed: u64,
    /// Whether further jobs match that this call did not reach; repeat the call.
    pub more: bool,
}
