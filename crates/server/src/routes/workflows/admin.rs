//! Commands on a workflow: close, cancel, retry.

use std::sync::Arc;

use axum::http::StatusCode;
use longshore_api::admin::Cancel;
use longshore_core::cancel::Force;
use longshore_core::id::WorkflowId;
use longshore_core::workflow::Workflow;
use longshore_engine::AdminCommand;

use super::get::{find, to_wire};
use crate::access::CallerState as State;
use crate::state::AppState;
use crate::wire::body::{JsonBody, NoBody};
use crate::wire::path::WorkflowPath;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, json};

/// `POST /v1/workflows/{id}/close`: a closed workflow accepts no more jobs. Idempotent.
pub(crate) async fn close(
    State(app): State<AppState>,
    WorkflowPath(id): WorkflowPath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    run(&app, id, AdminCommand::CloseWorkflow { id }, StatusCode::OK).await
}

/// `POST /v1/workflows/{id}/cancel`: 200 if all members have ended.
///
/// 202 if workers must stop first, or if one command may not end so many members.
pub(crate) async fn cancel(
    State(app): State<AppState>,
    WorkflowPath(id): WorkflowPath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let Cancel { reason, force } = body.object()?;
    let force = if force == Some(true) { Force::Now } else { Force::ByPolicy };
    run(&app, id, AdminCommand::CancelWorkflow { id, reason, force }, StatusCode::ACCEPTED).await
}

/// `POST /v1/workflows/{id}/retry`: requeues failed members and revives their dependents.
///
/// 202 if the workflow has more members than one command may requeue.
pub(crate) async fn retry(
    State(app): State<AppState>,
    WorkflowPath(id): WorkflowPath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    run(&app, id, AdminCommand::RetryWorkflow { id }, StatusCode::OK).await
}

/// Runs a command and returns the workflow. `unfinished` is the status if members still run.
async fn run(app: &AppState, id: WorkflowId, command: AdminCommand, unfinished: StatusCode) -> ApiResult {
    let before = find(app, id).await?;
    app.admin(command).await?;
    // Closing deletes a workflow that has no members left.
    let deleted = || Workflow { open: false, operation: None, ..Workflow::clone(&before) };
    let workflow = app.call_store(app.store.workflow(id)).await?.map_or_else(deleted, Arc::unwrap_or_clone);
    let status = if workflow.state().terminal() {
        StatusCode::OK
    } else if workflow.operation.is_some() {
        // Ticks continue with the remaining members.
        StatusCode::ACCEPTED
    } else {
        unfinished
    };
    json(status, &to_wire(&workflow))
}
