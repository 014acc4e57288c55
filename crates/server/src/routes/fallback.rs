//! Paths and methods without a route.

use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use longshore_api::ErrorCode;

use crate::dialects::ocypod;
use crate::state::AppState;
use crate::wire::problem::ApiError;
use crate::wire::response::ApiResult;

pub(crate) async fn not_found(State(app): State<AppState>, request: Request) -> ApiResult {
    if ocypod::is_ocypod_path(request.uri().path()) {
        return Ok(ocypod::unknown_path(app, request).await);
    }
    Err(ApiError::new(ErrorCode::NotFound, "there is nothing at this path"))
}

/// The router adds the header `Allow`.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiResult {
    let hint = match (method.as_str(), uri.path()) {
        ("POST" | "PUT", "/v1/jobs") => "; jobs are submitted with POST /v1/queues/{queue}/jobs",
        ("POST", "/v1/queues") => "; queues are created with PUT /v1/queues/{queue}",
        _ => "",
    };
    let detail = format!("this path does not support {method}: see \"Allow\"{hint}");
    Err(ApiError::new(ErrorCode::MethodNotAllowed, detail))
}
