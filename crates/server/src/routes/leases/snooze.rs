//! `POST /v1/jobs/{id}/snooze`

use axum::extract::State;
use longshore_api::work::Snooze;
use longshore_core::settle::Outcome;

use super::settle::settle;
use crate::app::AppState;
use crate::convert::length;
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn snooze(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> Answer {
    let Snooze { lease, delay } = body.object()?;
    settle(&app, id, lease.as_deref(), Outcome::Snooze { delay: length(delay) }).await
}
