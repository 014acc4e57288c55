//! `GET /v1/jobs/{id}/payload`

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use longshore_core::refusal::Refusal;
use longshore_core::submit::Payload;

use super::get::{find, payload as read};
use crate::app::AppState;
use crate::wire::answer::{Answer, JSON};
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

/// The bytes themselves, as they were given.
pub(crate) async fn payload(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery) -> Answer {
    let job = find(&app, id).await?;
    let payload = read(&app, &job).await?.ok_or(Refusal::JobNotFound)?;
    let kind = match &payload {
        Payload::Json(_) => JSON,
        Payload::Binary(_) => HeaderValue::from_static("application/octet-stream"),
    };
    // They are a user's bytes: a browser must not guess that they are a page.
    let sniff = HeaderValue::from_static("nosniff");
    let headers = [(header::CONTENT_TYPE, kind), (header::X_CONTENT_TYPE_OPTIONS, sniff)];
    Ok((headers, payload.bytes().clone()).into_response())
}
