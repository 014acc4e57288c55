//! `GET /openapi.json`

use axum::http::header;
use axum::response::IntoResponse;

use crate::openapi::json;
use crate::wire::answer::{Answer, JSON};
use crate::wire::query::NoQuery;

pub(crate) async fn openapi(_: NoQuery) -> Answer {
    Ok(([(header::CONTENT_TYPE, JSON)], json()).into_response())
}
