//! `POST /v1/workflows` and `POST /v1/workflows/{id}/jobs`: submit jobs as members of a workflow.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use longshore_api::ErrorCode;
use longshore_api::workflow::WorkflowCreated;
use longshore_core::refusal::Refusal;
use longshore_engine::{AdminCommand, AdminResponse, SubmitRequest, Submitted, WorkflowTarget};
use serde_json::value::RawValue;

use super::get::find;
use super::parse::{ParsedWorkflow, WorkflowBody};
use crate::access::CallerState as State;
use crate::convert::shared;
use crate::routes::batch::Batch;
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::path::WorkflowPath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, created, json};

/// `POST /v1/workflows`: stores the workflow with all of its jobs, or nothing.
pub(crate) async fn create(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> ApiResult {
    let body: WorkflowBody<'_> = body.required()?;
    let open = body.open.unwrap_or(false);
    let workflow = ParsedWorkflow::parse(&body)?;
    let name = shared(body.name);
    let Some(workflow) = workflow else {
        if !open {
            let detail = "is required, or chain, group or chord, unless the workflow is open";
            return Err(ApiError::validation("jobs", detail));
        }
        return match app.admin(AdminCommand::OpenWorkflow { name }).await? {
            AdminResponse::Workflow { id, .. } => created(&WorkflowCreated { id: id.to_string(), jobs: [].into() }),
            AdminResponse::Done
            | AdminResponse::QueuePut { .. }
            | AdminResponse::State { .. }
            | AdminResponse::CancelRequested => {
                Err(ApiError::new(ErrorCode::Internal, "internal error: the store returned no workflow"))
            }
        };
    };
    let (batch, add_dependencies) = workflow.split();
    let joining = Some(WorkflowTarget::New { name, open });
    let request = |jobs| SubmitRequest { joining, ..SubmitRequest::parsed(add_dependencies(jobs)) };
    created_members(&batch.submit(&app, request, Batch::refusal).await?)
}

/// `POST /v1/workflows/{id}/jobs`: adds members to an open workflow. The body has one of the forms
/// of a new workflow, or is an array of jobs.
pub(crate) async fn add_jobs(
    State(app): State<AppState>,
    WorkflowPath(id): WorkflowPath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    if !find(&app, id).await?.open {
        return Err(Refusal::Illegal("the workflow is closed").into());
    }
    let body: WorkflowBody<'_> = match serde_json::from_str::<Vec<&RawValue>>(body.text()?) {
        Ok(jobs) => {
            let (name, queue, open) = (None, None, None);
            WorkflowBody { name, queue, open, jobs: Some(jobs), chain: None, group: None, chord: None }
        }
        Err(_) => body.required()?,
    };
    if body.name.is_some() || body.open.is_some() {
        return Err(ApiError::validation("name", "and open can be set only when a workflow is created"));
    }
    let workflow = ParsedWorkflow::parse(&body)?;
    let workflow = workflow.ok_or_else(|| ApiError::validation("jobs", "is required, or chain, group or chord"))?;
    let (batch, add_dependencies) = workflow.split();
    let joining = Some(WorkflowTarget::Open(id));
    let request = |jobs| SubmitRequest { joining, ..SubmitRequest::parsed(add_dependencies(jobs)) };
    created_members(&batch.submit(&app, request, Batch::refusal).await?)
}

/// 201, or 200 if every member is a duplicate.
fn created_members(submitted: &[Submitted]) -> ApiResult {
    let status = if submitted.iter().all(|job| job.duplicate) { StatusCode::OK } else { StatusCode::CREATED };
    let no_workflow = || ApiError::new(ErrorCode::Internal, "internal error: submitted jobs joined no workflow");
    json(status, &members_by_ref(submitted).ok_or_else(no_workflow)?)
}

/// Returns the workflow and the ids of its members. Every member has a ref.
fn members_by_ref(submitted: &[Submitted]) -> Option<WorkflowCreated> {
    let id = submitted.iter().find_map(|job| job.membership.as_ref())?.workflow.to_string();
    let entry = |job: &Submitted| Some((job.membership.as_ref()?.reference.to_string(), job.id.to_string()));
    Some(WorkflowCreated { id, jobs: submitted.iter().filter_map(entry).collect::<BTreeMap<_, _>>() })
}
