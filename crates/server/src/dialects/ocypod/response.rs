//! Responses. Errors are text, never JSON.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longshore_core::id::{QueueName, Seq};
use longshore_core::refusal::{Invalid, Refusal};
use serde::Serialize;

use crate::wire::problem::ApiError;
use crate::wire::response::JSON;

pub(super) type OcypodResult = Result<Response, OcypodError>;

#[derive(Debug)]
pub(super) struct OcypodError {
    status: StatusCode,
    kind: Option<&'static str>,
    text: String,
}

/// Content type of errors of Ocypod itself.
const OWN: &str = "text/html; charset=utf-8";
/// Content type of errors that Ocypod's HTTP framework reports.
const UNREADABLE: &str = "text/plain; charset=utf-8";

impl OcypodError {
    /// `text` must not contain client input: browsers interpret it as HTML.
    pub(super) fn own(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, kind: Some(OWN), text: text.into() }
    }

    pub(super) fn unreadable(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, kind: Some(UNREADABLE), text: text.into() }
    }

    pub(super) fn unknown_field(name: &str) -> Self {
        let name: String = name.chars().take(100).collect();
        Self { status: StatusCode::BAD_REQUEST, kind: None, text: format!("Unrecognised field: {name}") }
    }

    /// An error without text.
    pub(super) fn empty_body(status: StatusCode) -> Self {
        Self { status, kind: None, text: String::new() }
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::own(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn conflict(text: impl Into<String>) -> Self {
        Self::own(StatusCode::CONFLICT, text)
    }

    pub(super) fn no_queue(name: &QueueName) -> Self {
        Self::own(StatusCode::NOT_FOUND, format!("Queue '{name}' does not exist"))
    }

    pub(super) fn no_job(id: Seq) -> Self {
        Self::own(StatusCode::NOT_FOUND, format!("Job with ID {id} does not exist"))
    }

    /// Converts a refusal about a job of this queue.
    pub(super) fn refused(refusal: Refusal, queue: &QueueName, job: Option<Seq>) -> Self {
        if refusal == Refusal::QueueNotFound {
            return Self::no_queue(queue);
        }
        match job {
            Some(id) if refusal == Refusal::JobNotFound => Self::no_job(id),
            Some(_) | None => refusal.into(),
        }
    }

    pub(super) fn too_large(bytes: usize, bytes_max: usize) -> Self {
        let text = format!("JSON payload ({bytes} bytes) is larger than allowed (limit: {bytes_max} bytes).");
        Self::unreadable(StatusCode::PAYLOAD_TOO_LARGE, text)
    }
}

/// Converts an error of the server to a response of Ocypod.
pub(crate) fn error_response(error: ApiError) -> Response {
    let mut response = OcypodError::from(error).into_response();
    if response.status() == StatusCode::UNAUTHORIZED {
        let headers = response.headers_mut();
        headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"longshore\""));
    }
    response
}

impl From<ApiError> for OcypodError {
    fn from(error: ApiError) -> Self {
        let problem = error.problem();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Ocypod has one status for all errors of the store.
        let status = if status.is_server_error() { StatusCode::SERVICE_UNAVAILABLE } else { status };
        Self::unreadable(status, problem.detail.clone())
    }
}

impl From<Refusal> for OcypodError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::PayloadTooLarge { bytes, bytes_max, .. } => {
                Self::too_large(bytes, usize::try_from(bytes_max).unwrap_or(usize::MAX))
            }
            Refusal::StatusChange { .. } | Refusal::Illegal(_) | Refusal::QueueNotEmpty { .. } => {
                Self::conflict(refusal.to_string())
            }
            Refusal::Invalid(_)
            | Refusal::QueueNotFound
            | Refusal::JobNotFound
            | Refusal::WorkflowNotFound
            | Refusal::StaleLease(_)
            | Refusal::IllegalTransition { .. }
            | Refusal::DuplicateId
            | Refusal::QueueFull { .. }
            | Refusal::DependencyUnknown { .. }
            | Refusal::DependencyCycle(_)
            | Refusal::DependencyDepth
            | Refusal::DependencyBreadth { .. } => ApiError::from(refusal).into(),
        }
    }
}

impl From<Invalid> for OcypodError {
    fn from(invalid: Invalid) -> Self {
        Refusal::from(invalid).into()
    }
}

impl IntoResponse for OcypodError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(kind) = self.kind {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}

pub(super) fn ok(body: &impl Serialize) -> OcypodResult {
    json(StatusCode::OK, body)
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> OcypodResult {
    let bytes = serde_json::to_vec(body);
    let bytes = bytes.map_err(|_| OcypodError::empty_body(StatusCode::INTERNAL_SERVER_ERROR))?;
    Ok((status, [(header::CONTENT_TYPE, JSON)], bytes).into_response())
}

pub(super) fn no_content() -> OcypodResult {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Adds the header `Location`.
pub(super) fn with_location(mut response: Response, path: &str) -> OcypodResult {
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    Ok(response)
}
