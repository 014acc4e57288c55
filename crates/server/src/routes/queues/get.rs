//! `GET /v1/queues/{queue}`

use axum::extract::State;
use longshore_core::id::QueueName;
use longshore_core::refusal::Refusal;
use longshore_store::QueueStats;

use crate::app::AppState;
use crate::convert::queue::shown;
use crate::wire::answer::{Answer, ok};
use crate::wire::path::QueuePath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;

pub(crate) async fn get(State(app): State<AppState>, QueuePath(queue): QueuePath, _: NoQuery) -> Answer {
    ok(&shown(&find(&app, queue).await?))
}

pub(crate) async fn find(app: &AppState, queue: QueueName) -> Result<QueueStats, ApiError> {
    let found = app.call_store(app.store.queue(queue)).await?;
    found.ok_or_else(|| Refusal::QueueNotFound.into())
}
