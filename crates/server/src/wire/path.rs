//! Parameters of paths.

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use longshore_api::ErrorCode;
use longshore_core::id::{JobId, OperationId, QueueName, ScheduleName, WorkerName, WorkflowId};
use longshore_core::refusal::Refusal;
use longshore_engine::DeliveryKey;

use super::problem::ApiError;

/// `{id}` of a job; a malformed id is `job_not_found`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobPath(pub JobId);

/// `{id}` of a workflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkflowPath(pub WorkflowId);

/// `{queue}`.
#[derive(Clone, Debug)]
pub(crate) struct QueuePath(pub QueueName);

/// `{name}` of a schedule.
#[derive(Clone, Debug)]
pub(crate) struct SchedulePath(pub ScheduleName);

impl<S: Send + Sync> FromRequestParts<S> for SchedulePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name = param(parts, state, "name").await?;
        Ok(Self(ScheduleName::new(&name)?))
    }
}

/// `{worker}`.
#[derive(Clone, Debug)]
pub(crate) struct WorkerPath(pub WorkerName);

/// `{id}` of an operation; a malformed id is `not_found`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationPath(pub OperationId);

impl<S: Send + Sync> FromRequestParts<S> for OperationPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = param(parts, state, "id").await?;
        id.parse().map(Self).map_err(|_| ApiError::new(ErrorCode::NotFound, "there is no such operation"))
    }
}

/// `{id}` of a token.
#[derive(Clone, Debug)]
pub(crate) struct TokenPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for TokenPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        param(parts, state, "id").await.map(Self)
    }
}

/// `{name}` of a webhook endpoint.
#[derive(Clone, Debug)]
pub(crate) struct WebhookPath(pub String);

/// `{id}` of a delivery; a malformed id is `not_found`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryPath(pub DeliveryKey);

impl<S: Send + Sync> FromRequestParts<S> for WebhookPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        param(parts, state, "name").await.map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for DeliveryPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = param(parts, state, "id").await?;
        id.parse().map(Self).map_err(|_| ApiError::new(ErrorCode::NotFound, "there is no such delivery"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for WorkerPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name = param(parts, state, "worker").await?;
        Ok(Self(WorkerName::new(&name)?))
    }
}

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

async fn param<S: Send + Sync>(parts: &mut Parts, state: &S, name: &str) -> Result<String, ApiError> {
    let not_utf8 = |_: RawPathParamsRejection| ApiError::bad_request("the path is not UTF-8");
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(not_utf8)?;
    let value = params.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_owned());
    value.ok_or_else(|| ApiError::new(ErrorCode::NotFound, "there is nothing at this path"))
}
