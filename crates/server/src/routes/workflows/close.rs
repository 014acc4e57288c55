//! `POST /v1/workflows/{id}/close`

use axum::extract::State;
use axum::http::StatusCode;
use longshore_engine::AdminCommand;

use super::command;
use crate::app::AppState;
use crate::wire::answer::Answer;
use crate::wire::body::NoBody;
use crate::wire::path::WorkflowPath;
use crate::wire::query::NoQuery;

/// No more jobs will come. Closing again changes nothing.
pub(crate) async fn close(
    State(app): State<AppState>,
    WorkflowPath(id): WorkflowPath,
    _: NoQuery,
    _: NoBody,
) -> Answer {
    command(&app, id, AdminCommand::CloseWorkflow { id }, StatusCode::OK).await
}
