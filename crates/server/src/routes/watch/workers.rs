//! `GET /v1/workers`

use axum::extract::State;
use longshore_api::watch::Workers;

use crate::app::AppState;
use crate::wire::answer::{Answer, ok};
use crate::wire::query::NoQuery;

pub(crate) async fn workers(State(app): State<AppState>, _: NoQuery) -> Answer {
    ok(&Workers { workers: app.workers.shown() })
}
