//! `GET /v1/jobs/{id}/attempts`

use axum::extract::State;
use longshore_api::job::Attempts;

use super::get::find;
use crate::app::AppState;
use crate::convert::job::attempt;
use crate::wire::answer::{Answer, ok};
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn attempts(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery) -> Answer {
    let job = find(&app, id).await?;
    ok(&Attempts { attempts: job.attempts.iter().map(attempt).collect() })
}
