//! Names in paths.

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use longshore_api::ErrorCode;
use longshore_core::id::{JobId, QueueName, WorkflowId};
use longshore_core::refusal::Refusal;

use super::problem::ApiError;

/// `{id}`: what is no id is the id of no job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobPath(pub JobId);

/// `{id}` of a workflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkflowPath(pub WorkflowId);

/// `{queue}`.
#[derive(Clone, Debug)]
pub(crate) struct QueuePath(pub QueueName);

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = param(parts, state, "id").await?;
        id.parse().map(Self).map_err(|_| Refusal::JobNotFound.into())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for WorkflowPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = param(parts, state, "id").await?;
        id.parse().map(Self).map_err(|_| Refusal::WorkflowNotFound.into())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for QueuePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name = param(parts, state, "queue").await?;
        Ok(Self(QueueName::new(&name)?))
    }
}

async fn param<S: Send + Sync>(parts: &mut Parts, state: &S, wanted: &str) -> Result<String, ApiError> {
    let wrong = |_: RawPathParamsRejection| ApiError::bad_request("the path is not UTF-8");
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(wrong)?;
    let found = params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned());
    found.ok_or_else(|| ApiError::new(ErrorCode::NotFound, "there is nothing at this path"))
}
