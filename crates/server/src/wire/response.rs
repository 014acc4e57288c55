//! JSON responses.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longshore_api::ErrorCode;
use serde::Serialize;

use super::problem::ApiError;

/// The result of every route of `/v1`.
pub(crate) type ApiResult = Result<Response, ApiError>;

pub(crate) fn ok(body: &impl Serialize) -> ApiResult {
    json(StatusCode::OK, body)
}

pub(crate) fn created(body: &impl Serialize) -> ApiResult {
    json(StatusCode::CREATED, body)
}

pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> ApiResult {
    let bytes = serde_json::to_vec(body);
    let bytes =
        bytes.map_err(|_| ApiError::new(ErrorCode::Internal, "internal error: cannot serialize the response"))?;
    Ok((status, [(header::CONTENT_TYPE, JSON)], bytes).into_response())
}

pub(crate) fn no_content() -> ApiResult {
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
