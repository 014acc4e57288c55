//! Paths and methods that nobody answers.

use axum::extract::{Request, State};
use axum::http::Method;
use longshore_api::ErrorCode;

use crate::app::AppState;
use crate::dialects::ocypod;
use crate::wire::answer::Answer;
use crate::wire::problem::Failure;

pub(crate) async fn not_found(State(app): State<AppState>, request: Request) -> Answer {
    if ocypod::owns(request.uri().path()) {
        return Ok(ocypod::nothing_there(app, request).await);
    }
    Err(Failure::new(ErrorCode::NotFound, "there is nothing at this path"))
}

/// The router adds `Allow`.
pub(crate) async fn method_not_allowed(method: Method) -> Answer {
    Err(Failure::new(ErrorCode::MethodNotAllowed, format!("this path does not take {method}: see \"Allow\"")))
}
