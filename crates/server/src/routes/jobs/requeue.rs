//! `POST /v1/jobs/{id}/requeue`

use axum::extract::State;
use longshore_api::admin::Requeue as Given;
use longshore_core::requeue::{Requeue, Reset};
use longshore_engine::AdminCommand;

use super::command;
use crate::app::AppState;
use crate::convert::instant;
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

/// Answers the job that will run: the same one, or its clone.
pub(crate) async fn requeue(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> Answer {
    let Given { reset, run_at } = body.object()?;
    let counters = if reset.unwrap_or(true) { Reset::Zero } else { Reset::Keep };
    let how = Requeue { counters, run_at: run_at.map(instant) };
    command(&app, id, AdminCommand::Requeue { id, how }).await
}
