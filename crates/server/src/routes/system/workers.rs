//! `GET /v1/workers`

use axum::extract::State;
use longshore_api::system::Workers;

use crate::app::AppState;
use crate::background::worker_check;
use crate::wire::answer::{Answer, ok};
use crate::wire::query::NoQuery;

pub(crate) async fn workers(State(app): State<AppState>, _: NoQuery) -> Answer {
    worker_check::check_now(&app).await;
    ok(&Workers { workers: app.workers.shown() })
}
