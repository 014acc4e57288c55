//! A request with its whole body, also for routes that ignore it: unread bytes would end the
//! connection.

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use longshore_core::id::{QueueName, Seq};
use longshore_core::limits::QUEUE_NAME_CHARS_MAX;
use longshore_core::policy::Settings;
use longshore_core::profile::Profile;
use longshore_store::QueueStats;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::response::OcypodError;
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::json::depth;

/// Nesting depth of a body, as in Ocypod.
const DEPTH_MAX: usize = 127;
/// Bytes of a body beside the one value that the queue limits.
const ENVELOPE_BYTES_MAX: usize = 64 << 10;

pub(super) struct OcypodRequest {
    pub app: AppState,
    headers: HeaderMap,
    query: String,
    /// The parameter of the path; `None` if it is not UTF-8.
    param: Option<String>,
    body: Result<JsonBody, OcypodError>,
}

impl FromRequest<AppState> for OcypodRequest {
    type Rejection = OcypodError;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, OcypodError> {
        let (mut parts, body) = request.into_parts();
        let params = RawPathParams::from_request_parts(&mut parts, app).await.ok();
        let param = params.and_then(|params| params.iter().next().map(|(_, value)| value.to_owned()));
        let app = app.for_request(&parts)?;
        let body = JsonBody::whole(&app, &parts.headers, body).await.map_err(OcypodError::from);
        let query = parts.uri.query().unwrap_or_default().to_owned();
        Ok(Self { app, headers: parts.headers, query, param, body })
    }
}

/// Answers 404 to a method without a route, as Ocypod does.
pub(super) async fn not_found(_: OcypodRequest) -> OcypodError {
    OcypodError::empty_body(StatusCode::NOT_FOUND)
}

/// Answers 405 with an empty body.
pub(super) async fn method_not_allowed(_: OcypodRequest) -> OcypodError {
    OcypodError::empty_body(StatusCode::METHOD_NOT_ALLOWED)
}

/// Answers 404 to a path without a route.
pub(crate) async fn unknown_path(app: AppState, request: Request) -> Response {
    match OcypodRequest::from_request(request, &app).await {
        Ok(call) => not_found(call).await.into_response(),
        Err(error) => error.into_response(),
    }
}

/// Whether an unknown path belongs to Ocypod, so that the 404 is one of Ocypod.
pub(crate) fn is_ocypod_path(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    matches!(first, Some("queue" | "job" | "tag" | "info" | "health"))
}

impl OcypodRequest {
    pub(super) fn query(&self) -> &str {
        &self.query
    }

    /// Returns the parameter of the path.
    pub(super) fn param(&self) -> Result<&str, OcypodError> {
        match self.param.as_deref() {
            // `/queue//size` is an unknown path.
            Some("") => Err(OcypodError::empty_body(StatusCode::NOT_FOUND)),
            Some(text) => Ok(text),
            None => Err(OcypodError::unreadable(StatusCode::NOT_FOUND, "the path is not UTF-8")),
        }
    }

    /// Returns the job number of the path.
    pub(super) fn job(&self) -> Result<Seq, OcypodError> {
        let text = self.param()?;
        text.parse().map(Seq).map_err(|_| {
            let excerpt: String = text.chars().take(100).collect();
            OcypodError::unreadable(StatusCode::NOT_FOUND, format!("can not parse {excerpt:?} to a u64"))
        })
    }

    /// Returns the queue name of the path.
    pub(super) fn queue(&self) -> Result<QueueName, OcypodError> {
        let text = self.param()?;
        if !is_valid_queue_name(text) {
            return Err(OcypodError::bad("Invalid queue name, valid characters: a-zA-Z0-9_.-"));
        }
        QueueName::new(text).map_err(|_| {
            OcypodError::bad(format!("Invalid queue name, it may have at most {QUEUE_NAME_CHARS_MAX} characters"))
        })
    }

    /// Returns the queue of the path.
    pub(super) async fn existing_queue(&self) -> Result<QueueStats, OcypodError> {
        let name = self.queue()?;
        let report = self.app.call_store(self.app.store.queue(name.clone())).await?;
        report.filter(|report| report.queue.profile == Profile::Ocypod).ok_or_else(|| OcypodError::no_queue(&name))
    }

    /// Returns the JSON body, checked for size and depth.
    pub(super) fn json(self, bytes_max: usize) -> Result<OcypodJson, OcypodError> {
        let Self { headers, body, .. } = self;
        if !is_json(&headers) {
            return Err(OcypodError::unreadable(StatusCode::BAD_REQUEST, "Content type error"));
        }
        let body = body?;
        if body.bytes().len() > bytes_max {
            return Err(OcypodError::too_large(body.bytes().len(), bytes_max));
        }
        if depth(body.bytes()) > DEPTH_MAX {
            return Err(unreadable("recursion limit exceeded"));
        }
        Ok(OcypodJson(body))
    }

    /// Returns the JSON body of a request that contains one value of at most `payload_max` bytes.
    pub(super) fn json_around(self, payload_max: u32) -> Result<OcypodJson, OcypodError> {
        self.json(usize::try_from(payload_max).unwrap_or(usize::MAX).saturating_add(ENVELOPE_BYTES_MAX))
    }
}

/// Whether Ocypod accepts the name of a queue.
pub(super) fn is_valid_queue_name(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-');
    !name.is_empty() && name.bytes().all(allowed)
}

/// Returns the payload limit of a queue without overrides.
pub(super) fn payload_max() -> u32 {
    Settings::of_profile(Profile::Ocypod).admission.payload_max
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(kind), None) = (kinds.next(), kinds.next()) else { return false };
    let essence = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let essence = essence.to_ascii_lowercase();
    essence == b"application/json" || (essence.ends_with(b"+json") && essence.contains(&b'/'))
}

#[derive(Debug)]
pub(super) struct OcypodJson(JsonBody);

impl OcypodJson {
    /// Parses an object. Unknown fields are ignored.
    pub(super) fn object<'a, T: Deserialize<'a>>(&'a self) -> Result<T, OcypodError> {
        // serde would accept an array of field values.
        let first = self.0.bytes().iter().find(|byte| !byte.is_ascii_whitespace());
        if first.is_some_and(|first| *first != b'{') && serde_json::from_slice::<IgnoredAny>(self.0.bytes()).is_ok() {
            return Err(unreadable("invalid type, expected an object"));
        }
        let mut reader = serde_json::Deserializer::from_slice(self.0.bytes());
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let error = error.into_inner();
            if path == "." { unreadable(error) } else { unreadable(format!("{path}: {error}")) }
        })?;
        reader.end().map_err(unreadable)?;
        Ok(value)
    }

    /// Returns the bytes of any JSON value.
    pub(super) fn value(&self) -> Result<Bytes, OcypodError> {
        let raw: &serde_json::value::RawValue = serde_json::from_slice(self.0.bytes()).map_err(unreadable)?;
        Ok(Bytes::copy_from_slice(raw.get().as_bytes()))
    }
}

fn unreadable(error: impl std::fmt::Display) -> OcypodError {
    let text: String = format!("Json deserialize error: {error}").chars().take(400).collect();
    OcypodError::unreadable(StatusCode::BAD_REQUEST, text)
}
