//! Paths and methods that nobody answers.

use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use longshore_api::ErrorCode;

use crate::app::AppState;
use crate::dialects::ocypod;
use crate::wire::answer::Answer;
use crate::wire::problem::ApiError;

pub(crate) async fn not_found(State(app): State<AppState>, request: Request) -> Answer {
    if ocypod::is_ocypod_path(request.uri().path()) {
        return Ok(ocypod::nothing_there(app, request).await);
    }
    // In virtual time the clock has routes of its own.
    if matches!(request.uri().path(), "/v1/clock" | "/v1/clock/advance") {
        let detail = "this server runs in real time: start it with --virtual-clock to have a clock to read and advance";
        return Err(ApiError::new(ErrorCode::NotFound, detail));
    }
    Err(ApiError::new(ErrorCode::NotFound, "there is nothing at this path"))
}

/// The router adds `Allow`.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Answer {
    let instead = match (method.as_str(), uri.path()) {
        ("POST" | "PUT", "/v1/jobs") => "; jobs are submitted with POST /v1/queues/{queue}/jobs",
        ("POST", "/v1/queues") => "; queues are created with PUT /v1/queues/{queue}",
        _ => "",
    };
    let detail = format!("this path does not take {method}: see \"Allow\"{instead}");
    Err(ApiError::new(ErrorCode::MethodNotAllowed, detail))
}
