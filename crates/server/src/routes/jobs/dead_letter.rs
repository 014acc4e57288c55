//! `POST /v1/jobs/{id}/dead-letter`

use axum::extract::State;
use longshore_api::admin::DeadLetter;
use longshore_engine::AdminCommand;

use super::command;
use crate::app::AppState;
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn dead_letter(
    State(app): State<AppState>,
    JobPath(id): JobPath,
    _: NoQuery,
    body: JsonBody,
) -> Answer {
    let DeadLetter { reason } = body.object()?;
    command(&app, id, AdminCommand::DeadLetter { id, reason }).await
}
