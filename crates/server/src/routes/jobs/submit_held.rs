//! `POST /v1/jobs/{id}/submit`

use axum::extract::State;
use longshore_engine::AdminCommand;

use super::command;
use crate::app::AppState;
use crate::wire::answer::Answer;
use crate::wire::body::NoBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn submit_held(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, _: NoBody) -> Answer {
    command(&app, id, AdminCommand::SubmitHeld { id }).await
}
