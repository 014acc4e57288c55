//! Answers.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longshore_api::ErrorCode;
use serde::Serialize;

use super::problem::ApiError;

/// What every route answers.
pub(crate) type Answer = Result<Response, ApiError>;

pub(crate) fn ok(body: &impl Serialize) -> Answer {
    json(StatusCode::OK, body)
}

pub(crate) fn created(body: &impl Serialize) -> Answer {
    json(StatusCode::CREATED, body)
}

pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(body);
    let bytes = bytes.map_err(|_| ApiError::new(ErrorCode::Internal, "an answer could not be written"))?;
    Ok((status, [(header::CONTENT_TYPE, JSON)], bytes).into_response())
}

pub(crate) fn no_content() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
