//! `POST /v1/jobs/{id}/complete`

use axum::extract::State;
use longshore_api::work::Complete;
use longshore_core::settle::Outcome;

use super::settle::settle;
use crate::app::AppState;
use crate::convert::raw;
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn complete(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> Answer {
    let Complete { lease, result, progress } = body.object()?;
    let outcome = Outcome::Complete { result: result.map(raw::bytes), progress: progress.map(raw::bytes) };
    settle(&app, id, lease.as_deref(), outcome).await
}
