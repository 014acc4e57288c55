//! `POST /v1/workflows/{id}/cancel`

use axum::extract::State;
use axum::http::StatusCode;
use longshore_api::admin::Cancel;
use longshore_core::cancel::Force;
use longshore_engine::AdminCommand;

use super::command;
use crate::app::AppState;
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::path::WorkflowPath;
use crate::wire::query::NoQuery;

/// 200: all of it is cancelled. 202: some workers will be told, or there are more members than one command may end.
pub(crate) async fn cancel(
    State(app): State<AppState>,
    WorkflowPath(id): WorkflowPath,
    _: NoQuery,
    body: JsonBody,
) -> Answer {
    let Cancel { reason, force } = body.object()?;
    let force = if force == Some(true) { Force::Now } else { Force::ByPolicy };
    command(&app, id, AdminCommand::CancelWorkflow { id, reason, force }, StatusCode::ACCEPTED).await
}
