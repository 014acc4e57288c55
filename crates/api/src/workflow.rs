//! Workflows: jobs that are submitted together and observed as one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::enums::{State, WorkflowState};
use crate::time::Time;

/// Creates a workflow: `POST /v1/workflows`.
///
/// One of `jobs`, `chain`, `group` and `chord` is required, unless the workflow is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, bound(deserialize = "T: Deserialize<'de>"))]
pub struct NewWorkflow<T = WorkflowNode> {
    /// Name of the workflow, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Queue of jobs that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Whether jobs can be added later; the workflow runs until it is closed. Absent: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<bool>,
    /// Jobs that name their dependencies by `ref`.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<T>>,
    /// Jobs that run one after the other.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub chain: Option<Vec<T>>,
    /// Jobs that run in parallel.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub group: Option<Vec<T>>,
    /// A group, and a job after it.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub chord: Option<Chord<T>>,
}

/// A job, or an object with `chain`, `group` or `chord` in its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = serde_json::Value))]
#[serde(transparent)]
pub struct WorkflowNode(pub Box<RawValue>);

/// A chain, group or chord in the place of a job.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "T: Deserialize<'de>"))]
pub struct Nested<T> {
    #[serde(default = "none")]
    pub chain: Option<Vec<T>>,
    #[serde(default = "none")]
    pub group: Option<Vec<T>>,
    #[serde(default = "none")]
    pub chord: Option<Chord<T>>,
}

/// A group, and a job that runs after all of the group have completed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Chord<T = WorkflowNode> {
    /// Jobs that run in parallel.
    pub group: Vec<T>,
    /// Job that runs after them.
    pub finally: T,
}

fn none<T>() -> Option<T> {
    None
}

/// Ids of a new workflow and its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkflowCreated {
    /// Id of the workflow.
    pub id: String,
    /// Ids of the jobs, by `ref`. A job without `ref` is named by its index: `0`, `1`, …
    pub jobs: BTreeMap<String, String>,
}

/// A workflow without its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Workflow {
    /// Id of the workflow.
    pub id: String,
    /// Name of the workflow.
    pub name: Option<String>,
    /// State of the workflow.
    pub state: WorkflowState,
    /// Whether jobs can be added.
    pub open: bool,
    /// When the workflow was created.
    pub created_at: Time,
    /// Members in each state. A member that retention has removed counts in its last state.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counts: BTreeMap<State, u64>,
    /// Members that have ended.
    pub ended: u64,
    /// All members.
    pub total: u64,
}

/// A workflow with its members, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkflowWithJobs {
    /// The workflow.
    #[serde(flatten)]
    pub workflow: Workflow,
    /// Members of this page.
    pub jobs: Vec<Member>,
    /// `cursor` of the next page of members; `null` after the last one.
    pub next: Option<String>,
}

/// A job of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Member {
    /// Name of the job in the workflow.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Id of the job.
    pub id: String,
    /// State of the job.
    pub state: State,
    /// Queue of the job.
    pub queue: String,
    /// Kind of work.
    #[serde(rename = "type")]
    pub job_type: String,
    /// Ids of jobs that must complete first.
    pub after: Vec<String>,
    /// Ids of jobs of which one must end first.
    pub after_any: Vec<String>,
}

/// A page of workflows, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Workflows {
    /// Workflows of this page.
    pub workflows: Vec<Workflow>,
    /// `cursor` of the next page; `null` after the last one.
    pub next: Option<String>,
}

/// Results of the dependencies of a job: those of `after`, then those of `after_any`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Inputs {
    /// Dependencies of this page.
    pub inputs: Vec<Input>,
    /// `cursor` of the next page; `null` after the last one.
    pub next: Option<String>,
}

/// A dependency and its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Input {
    /// Id of the job.
    pub id: String,
    /// Name of the job in its workflow.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// State of the job; `null` if the job has been removed.
    pub state: Option<State>,
    /// Result of the job, if it has completed.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
}
