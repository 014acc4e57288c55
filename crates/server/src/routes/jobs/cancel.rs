//! `POST /v1/jobs/{id}/cancel`

use axum::extract::State;
use axum::http::StatusCode;
use longshore_api::admin::Cancel;
use longshore_api::enums::State as Word;
use longshore_api::work::JobState;
use longshore_core::cancel::Force;
use longshore_engine::{AdminCommand, AdminResponse};

use crate::app::AppState;
use crate::convert::enums::ToWire;
use crate::wire::answer::{Answer, json, ok};
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

/// 200: it is cancelled. 202: its worker will be told.
pub(crate) async fn cancel(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> Answer {
    let Cancel { reason, force } = body.object()?;
    let force = if force == Some(true) { Force::Now } else { Force::ByPolicy };
    let told = |state, cancel_requested| JobState { id: id.to_string(), state, cancel_requested };
    match app.admin(AdminCommand::Cancel { id, reason, force }).await? {
        AdminResponse::State { state, .. } => ok(&told(state.wire(), None)),
        AdminResponse::CancelRequested
        | AdminResponse::Done
        | AdminResponse::QueuePut { .. }
        | AdminResponse::Workflow { .. } => json(StatusCode::ACCEPTED, &told(Word::Running, Some(true))),
    }
}
