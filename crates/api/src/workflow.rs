//! Workflows: jobs that are handed in together and looked at as one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::enums::{State, WorkflowState};
use crate::time::Time;

/// `POST /v1/workflows`, in one of four forms: `jobs` that name each other by `ref`, a `chain`, a `group`, or a `chord`. Without any of them it must be open.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, bound(deserialize = "T: Deserialize<'de>"))]
pub struct NewWorkflow<T = WorkflowNode> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of jobs that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// More jobs will come; the workflow runs until it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<bool>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<T>>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub chain: Option<Vec<T>>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub group: Option<Vec<T>>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub chord: Option<Chord<T>>,
}

/// A job, or a chain, a group or a chord in its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(value_type = serde_json::Value))]
#[serde(transparent)]
pub struct WorkflowNode(pub Box<RawValue>);

/// Chain, group or chord in the place of a job.
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

/// `finally` runs once, after all of the group have completed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Chord<T = WorkflowNode> {
    pub group: Vec<T>,
    pub finally: T,
}

fn none<T>() -> Option<T> {
    None
}

/// What a call has made: ids by reference. A job without a `ref` is called by its place in the workflow: `0`, `1`, …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkflowCreated {
    pub id: String,
    pub jobs: BTreeMap<String, String>,
}

/// A workflow without its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Workflow {
    pub id: String,
    pub name: Option<String>,
    pub state: WorkflowState,
    pub open: bool,
    pub created_at: Time,
    /// Members in each state; one that retention has removed counts as it ended.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counts: BTreeMap<State, u64>,
    /// Of all members, how many have ended.
    pub ended: u64,
    pub total: u64,
}

/// A workflow with its members, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkflowWithJobs {
    #[serde(flatten)]
    pub workflow: Workflow,
    pub jobs: Vec<Member>,
    /// `cursor` of the next page of members.
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Member {
    #[serde(rename = "ref")]
    pub reference: String,
    pub id: String,
    pub state: State,
    pub queue: String,
    #[serde(rename = "type")]
    pub job_type: String,
    /// Ids of the jobs that it waits for, or waited for.
    pub after: Vec<String>,
    pub after_any: Vec<String>,
}

/// A page of workflows, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Workflows {
    pub workflows: Vec<Workflow>,
    pub next: Option<String>,
}

/// What a job's dependencies have to give it: those of `after`, then those of `after_any`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Inputs {
    pub inputs: Vec<Input>,
    /// `cursor` of the next page.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Input {
    pub id: String,
    /// Its name in its workflow.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// `null`: its record is gone.
    pub state: Option<State>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
}
