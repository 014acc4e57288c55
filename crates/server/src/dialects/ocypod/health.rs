//! `GET /health`

use axum::http::StatusCode;
use serde::Serialize;

use super::request::OcypodRequest;
use super::response::{Answer, OcypodError, ok};

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

/// A store that does not answer is no 200.
pub(super) async fn health(call: OcypodRequest) -> Answer {
    call.app.call_store(call.app.store.queues()).await?;
    if call.app.store_failed() {
        return Err(OcypodError::own(StatusCode::SERVICE_UNAVAILABLE, "the store has failed for good"));
    }
    ok(&Health { status: "healthy" })
}
