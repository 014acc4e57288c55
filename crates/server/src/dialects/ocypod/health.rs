//! `GET /health`

use axum::http::StatusCode;
use serde::Serialize;

use super::request::Call;
use super::response::{Answer, No, ok};

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

/// A store that does not answer is no 200.
pub(super) async fn health(call: Call) -> Answer {
    call.app.ask(call.app.store.queues()).await?;
    if call.app.broken() {
        return Err(No::own(StatusCode::SERVICE_UNAVAILABLE, "the store has failed for good"));
    }
    ok(&Health { status: "healthy" })
}
