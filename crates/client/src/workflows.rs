//! Requests about workflows: submit, read, change.

use form_urlencoded::Serializer;
use longshore_api::admin::Cancel;
use longshore_api::enums::WorkflowState;
use longshore_api::workflow::{Workflow, WorkflowCreated, WorkflowWithJobs, Workflows};
use serde::Serialize;

use crate::client::Client;
use crate::error::Error;
use crate::query::segment;

fn path(id: &str, verb: &str) -> String {
    format!("/v1/workflows/{}{verb}", segment(id))
}

/// Appends the parameters that have a value.
fn page(start: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let mut query = Serializer::new(String::new());
    for (name, value) in pairs {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    if query.is_empty() { start.to_owned() } else { format!("{start}?{query}") }
}

impl Client {
    /// Submits a [`NewWorkflow`](longshore_api::workflow::NewWorkflow), or JSON of the same form:
    /// all of its jobs, or none.
    pub async fn submit_workflow(&self, workflow: &(impl Serialize + Sync + ?Sized)) -> Result<WorkflowCreated, Error> {
        self.post("/v1/workflows", workflow).await
    }

    /// Adds jobs to an open workflow.
    pub async fn add_workflow_jobs(
        &self,
        id: &str,
        jobs: &(impl Serialize + Sync + ?Sized),
    ) -> Result<WorkflowCreated, Error> {
        self.post(&path(id, "/jobs"), jobs).await
    }

    pub async fn close_workflow(&self, id: &str) -> Result<Workflow, Error> {
        self.post_empty(&path(id, "/close")).await
    }

    /// Returns a workflow with one page of members, oldest first; 10,000 without a limit.
    pub async fn workflow(
        &self,
        id: &str,
        limit: Option<u64>,
        cursor: Option<&str>,
    ) -> Result<WorkflowWithJobs, Error> {
        let limit = limit.map(|limit| limit.to_string());
        self.get(&page(&path(id, ""), &[("limit", limit.as_deref()), ("cursor", cursor)])).await
    }

    /// Returns one page of workflows, newest first.
    pub async fn workflows(
        &self,
        state: Option<WorkflowState>,
        limit: Option<u64>,
        cursor: Option<&str>,
    ) -> Result<Workflows, Error> {
        let limit = limit.map(|limit| limit.to_string());
        let pairs = [("state", state.map(WorkflowState::as_str)), ("limit", limit.as_deref()), ("cursor", cursor)];
        self.get(&page("/v1/workflows", &pairs)).await
    }

    pub async fn cancel_workflow(&self, id: &str, cancel: &Cancel) -> Result<Workflow, Error> {
        self.post(&path(id, "/cancel"), cancel).await
    }

    /// Retries failed members, and revives those that waited for them.
    pub async fn retry_workflow(&self, id: &str) -> Result<Workflow, Error> {
        self.post_empty(&path(id, "/retry")).await
    }
}
