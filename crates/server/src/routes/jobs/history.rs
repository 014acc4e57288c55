//! `GET /v1/jobs/{id}/history`

use axum::extract::State;
use longshore_api::job::History;

use super::get::find;
use crate::app::AppState;
use crate::convert::job::step;
use crate::wire::answer::{Answer, ok};
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn history(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery) -> Answer {
    let job = find(&app, id).await?;
    ok(&History { history: job.history.moves().iter().map(step).collect() })
}
