//! `POST /v1/jobs/{id}/fail`

use axum::extract::State;
use longshore_api::work::Fail;
use longshore_core::settle::Outcome;

use super::settle::settle;
use crate::app::AppState;
use crate::convert::settlement::reported;
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn fail(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> Answer {
    let Fail { lease, error } = body.object()?;
    settle(&app, id, lease.as_deref(), Outcome::Fail(reported(error))).await
}
