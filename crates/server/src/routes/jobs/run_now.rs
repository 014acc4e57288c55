//! `POST /v1/jobs/{id}/run-now`

use axum::extract::State;
use longshore_engine::AdminCommand;

use super::command;
use crate::app::AppState;
use crate::wire::answer::Answer;
use crate::wire::body::NoBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn run_now(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, _: NoBody) -> Answer {
    command(&app, id, AdminCommand::RunNow { id }).await
}
