//! `POST /v1/workflows/{id}/retry`

use axum::extract::State;
use axum::http::StatusCode;
use longshore_engine::AdminCommand;

use super::command;
use crate::app::AppState;
use crate::wire::answer::Answer;
use crate::wire::body::NoBody;
use crate::wire::path::WorkflowPath;
use crate::wire::query::NoQuery;

/// Runs again what failed, and returns what waited on it. 202: there are more members than one command may bring back.
pub(crate) async fn retry(
    State(app): State<AppState>,
    WorkflowPath(id): WorkflowPath,
    _: NoQuery,
    _: NoBody,
) -> Answer {
    command(&app, id, AdminCommand::RetryWorkflow { id }, StatusCode::OK).await
}
