//! Paths and methods that nobody answers.

use axum::http::{Method, Uri};
use longshore_api::ErrorCode;

use crate::dialects::ocypod::{self, Drained};
use crate::wire::answer::Answer;
use crate::wire::problem::Failure;

pub(crate) async fn not_found(uri: Uri, request: Drained) -> Answer {
    if ocypod::owns(uri.path()) {
        return Ok(ocypod::nothing_there(request).await);
    }
    Err(Failure::new(ErrorCode::NotFound, "there is nothing at this path"))
}

/// The router adds `Allow`.
pub(crate) async fn method_not_allowed(method: Method) -> Answer {
    Err(Failure::new(ErrorCode::MethodNotAllowed, format!("this path does not take {method}: see \"Allow\"")))
}
