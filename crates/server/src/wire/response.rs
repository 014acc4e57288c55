//! JSON responses.

use axum::body::Body;
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
    Ok(json_bytes(status, bytes))
}

/// Returns a response with a JSON text.
pub(crate) fn json_bytes(status: StatusCode, json: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

pub(crate) fn no_content() -> ApiResult {
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
