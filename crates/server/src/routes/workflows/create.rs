//! `POST /v1/workflows`

use axum::extract::State;
use longshore_api::workflow::WorkflowCreated;
use longshore_engine::{AdminCommand, AdminResponse, SubmitRequest, WorkflowTarget};

use super::made_by;
use super::parse::{Given, ParsedWorkflow};
use crate::app::AppState;
use crate::convert::shared;
use crate::routes::batch::Batch;
use crate::wire::answer::{Answer, created};
use crate::wire::body::JsonBody;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;

/// All of it is stored, or nothing.
pub(crate) async fn create(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> Answer {
    let given: Given<'_> = body.required()?;
    let open = given.open.unwrap_or(false);
    let steps = ParsedWorkflow::read(&given)?;
    let name = shared(given.name);
    let Some(steps) = steps else {
        if !open {
            return Err(ApiError::validation(
                "jobs",
                "is required, or chain, group or chord, unless the workflow is open",
            ));
        }
        return match app.admin(AdminCommand::OpenWorkflow { name }).await? {
            AdminResponse::Workflow { id, .. } => created(&WorkflowCreated { id: id.to_string(), jobs: [].into() }),
            AdminResponse::Done
            | AdminResponse::QueuePut { .. }
            | AdminResponse::State { .. }
            | AdminResponse::CancelRequested => {
                Err(ApiError::new(longshore_api::ErrorCode::Internal, "an odd answer about a new workflow"))
            }
        };
    };
    let (batch, tie) = steps.split();
    let request = |members| SubmitRequest::workflow(tie(members), WorkflowTarget::New { name, open });
    made_by(&batch.submit(&app, request, Batch::refusal).await?)
}
