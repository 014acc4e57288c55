//! `GET /metrics`, in the text format of Prometheus.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;

use crate::app::AppState;
use crate::background::metrics::exposition;
use crate::routes::system::health::store_health;
use crate::wire::answer::Answer;
use crate::wire::query::NoQuery;

pub(crate) async fn metrics(State(app): State<AppState>, _: NoQuery) -> Answer {
    let queues = app.call_store(app.store.queues()).await?;
    let health = store_health(&app).await;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], exposition(&app, &queues, &health)).into_response())
}
