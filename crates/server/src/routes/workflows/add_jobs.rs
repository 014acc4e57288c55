//! `POST /v1/workflows/{id}/jobs`

use axum::extract::State;
use longshore_core::refusal::Refusal;
use longshore_engine::{SubmitRequest, WorkflowTarget};
use serde_json::value::RawValue;

use super::parse::{Given, ParsedWorkflow};
use super::{find, made_by};
use crate::app::AppState;
use crate::routes::batch::Batch;
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::path::WorkflowPath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;

/// Adds to an open workflow: in one of the forms of a new one, or as an array of jobs.
pub(crate) async fn grow(
    State(app): State<AppState>,
    WorkflowPath(id): WorkflowPath,
    _: NoQuery,
    body: JsonBody,
) -> Answer {
    if !find(&app, id).await?.open {
        return Err(Refusal::Illegal("the workflow is closed").into());
    }
    let text = body.text()?;
    let given: Given<'_> = match serde_json::from_str::<Vec<&RawValue>>(text) {
        Ok(jobs) => {
            Given { name: None, queue: None, open: None, jobs: Some(jobs), chain: None, group: None, chord: None }
        }
        Err(_) => body.required()?,
    };
    if given.name.is_some() || given.open.is_some() {
        return Err(ApiError::validation("name", "and open are said when a workflow is made"));
    }
    let steps = ParsedWorkflow::read(&given)?;
    let steps = steps.ok_or_else(|| ApiError::validation("jobs", "is required, or chain, group or chord"))?;
    let (batch, tie) = steps.split();
    let request = |members| SubmitRequest::workflow(tie(members), WorkflowTarget::Open(id));
    made_by(&batch.submit(&app, request, Batch::refusal).await?)
}
