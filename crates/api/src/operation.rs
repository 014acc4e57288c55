//! Durable operations: one action on all jobs that match a filter.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::enums::{OperationAction, OperationState, State, UndoState};
use crate::serde_util::object;
use crate::states::States;
use crate::time::Time;

/// Starts an operation: `POST /v1/operations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewOperation {
    /// What is done to each matching job.
    pub action: OperationAction,
    /// Which jobs match. Jobs that are submitted later are not treated.
    #[serde(deserialize_with = "object")]
    pub filter: OperationFilter,
    /// Jobs per second: 1 to 10000. Absent: not paced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Jobs to treat first, 1 to 100. The operation then waits. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<u32>,
    /// Only counts the matching jobs. Absent: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
}

/// Conditions of an operation. All of them must hold; at least one is required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct OperationFilter {
    /// Name of the queue. Absent: all queues, for which a token needs `*`.
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
    /// Id of a group of dead letters: 16 hexadecimal digits. Implies the state `dead_letter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// An operation that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OperationStarted {
    /// Id of the operation.
    pub id: String,
    /// Jobs that match, as far as they are counted.
    pub matched: u64,
    /// Whether all matching jobs are counted. If not, the server goes on counting.
    pub counted: bool,
}

/// A durable operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BulkOperation {
    /// Id of the operation.
    pub id: String,
    /// What is done to each matching job.
    pub action: OperationAction,
    /// Which jobs match.
    pub filter: OperationFilter,
    /// Jobs per second; `null`: not paced.
    pub rate: Option<u32>,
    /// Whether it only counts.
    pub dry_run: bool,
    /// Where the operation is.
    pub state: OperationState,
    /// Jobs that matched at the start.
    pub matched: u64,
    /// Whether all matching jobs are counted.
    pub counted: bool,
    /// Jobs that accepted the action, including cancels that were only requested.
    pub changed: u64,
    /// Jobs that refused the action.
    pub refused: u64,
    /// Counted jobs that were not treated yet; 0 once the operation is done.
    pub remaining: u64,
    /// Refused jobs by error code.
    pub refusals: BTreeMap<String, u64>,
    /// The jobs that are treated first; `null` without a canary.
    pub canary: Option<OperationCanary>,
    /// When the operation was started.
    pub created_at: Time,
    /// When its record last changed.
    pub updated_at: Time,
    /// When it was stopped or done.
    pub ended_at: Option<Time>,
    /// When the next slice of a paced operation is due.
    pub next_at: Option<Time>,
    /// Until when `undo` is accepted; `null`: it is not.
    pub undo_until: Option<Time>,
    /// The undo, once it was requested.
    pub undo: Option<OperationUndo>,
}

/// The jobs that an operation treats before it waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OperationCanary {
    /// Jobs to treat first.
    pub size: u32,
    /// Those that accepted the action.
    pub jobs: Vec<CanaryJob>,
    /// How many of them have ended.
    pub ended: u64,
    /// How they have ended.
    pub outcomes: CanaryOutcomes,
    /// When a client continued the operation.
    pub continued_at: Option<Time>,
}

/// One of the first jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CanaryJob {
    /// Id of the job that runs: the clone, if the job was requeued as a clone.
    pub id: String,
    /// Its state; `null`: its record is gone.
    pub state: Option<State>,
    /// Code of its last error.
    pub error_code: Option<String>,
}

/// Numbers of canary jobs by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CanaryOutcomes {
    /// Completed.
    pub completed: u64,
    /// Failed.
    pub failed: u64,
    /// Dead-lettered.
    pub dead_letter: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Deleted or pruned.
    pub gone: u64,
}

/// The undo of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct OperationUndo {
    /// Whether it has ended.
    pub state: UndoState,
    /// When it was requested.
    pub at: Time,
    /// Jobs that were taken back.
    pub undone: u64,
    /// Jobs that were kept: they have run or changed since.
    pub kept: u64,
}

/// A page of operations, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Operations {
    /// The operations.
    pub operations: Vec<BulkOperation>,
    /// Cursor of the next page; `null` on the last page.
    pub next: Option<String>,
}
