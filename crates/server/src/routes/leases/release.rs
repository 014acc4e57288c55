//! `POST /v1/jobs/{id}/release`

use axum::extract::State;
use longshore_api::work::Release;
use longshore_core::settle::Outcome;

use super::settle::settle;
use crate::app::AppState;
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn release(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> Answer {
    let Release { lease } = body.object()?;
    settle(&app, id, lease.as_deref(), Outcome::Release).await
}
