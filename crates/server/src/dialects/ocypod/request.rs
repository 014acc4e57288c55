//! A request as the routes of the dialect see it. Its body is always read, also where nobody wants it: a connection that is kept alive must
//! find the next request behind it.

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
use crate::app::AppState;
use crate::wire::body::JsonBody;
use crate::wire::json::depth;

/// Levels of nesting that a body may have, as many as Ocypod reads.
const DEPTH_MAX: usize = 127;
/// Of everything in a body beside the one value that a queue limits.
const ENVELOPE_BYTES_MAX: usize = 64 << 10;

pub(super) struct OcypodRequest {
    pub app: AppState,
    headers: HeaderMap,
    query: String,
    /// The name in the path; `None` if it cannot be read.
    param: Option<String>,
    body: Result<JsonBody, OcypodError>,
}

impl FromRequest<AppState> for OcypodRequest {
    type Rejection = OcypodError;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, OcypodError> {
        let (mut parts, body) = request.into_parts();
        let params = RawPathParams::from_request_parts(&mut parts, app).await.ok();
        let param = params.and_then(|params| params.iter().next().map(|(_, value)| value.to_owned()));
        let body = JsonBody::whole(app, &parts.headers, body).await.map_err(OcypodError::from);
        let query = parts.uri.query().unwrap_or_default().to_owned();
        Ok(Self { app: app.clone(), headers: parts.headers, query, param, body })
    }
}

/// Nobody answers to this method, and the dialect does not let on that anybody answers at all.
pub(super) async fn not_found(_: OcypodRequest) -> OcypodError {
    OcypodError::empty_body(StatusCode::NOT_FOUND)
}

pub(super) async fn no_such_method(_: OcypodRequest) -> OcypodError {
    OcypodError::empty_body(StatusCode::METHOD_NOT_ALLOWED)
}

/// Nobody answers at this path.
pub(crate) async fn nothing_there(app: AppState, request: Request) -> Response {
    match OcypodRequest::from_request(request, &app).await {
        Ok(call) => not_found(call).await.into_response(),
        Err(no) => no.into_response(),
    }
}

/// Whether a path that no route knows is one that clients of the dialect may have meant.
pub(crate) fn is_ocypod_path(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    matches!(first, Some("queue" | "job" | "tag" | "info" | "health"))
}

impl OcypodRequest {
    pub(super) fn query(&self) -> &str {
        &self.query
    }

    /// The text in the path.
    pub(super) fn param(&self) -> Result<&str, OcypodError> {
        match self.param.as_deref() {
            // `/queue//size`: a path that nobody answers.
            Some("") => Err(OcypodError::empty_body(StatusCode::NOT_FOUND)),
            Some(text) => Ok(text),
            None => Err(OcypodError::unreadable(StatusCode::NOT_FOUND, "the path is not UTF-8")),
        }
    }

    /// The job's number in the path.
    pub(super) fn job(&self) -> Result<Seq, OcypodError> {
        let text = self.param()?;
        text.parse().map(Seq).map_err(|_| {
            let shown: String = text.chars().take(100).collect();
            OcypodError::unreadable(StatusCode::NOT_FOUND, format!("can not parse {shown:?} to a u64"))
        })
    }

    /// The queue's name in the path.
    pub(super) fn queue(&self) -> Result<QueueName, OcypodError> {
        let text = self.param()?;
        if !is_valid_queue_name(text) {
            return Err(OcypodError::bad("Invalid queue name, valid characters: a-zA-Z0-9_.-"));
        }
        QueueName::new(text).map_err(|_| {
            OcypodError::bad(format!("Invalid queue name, it may have at most {QUEUE_NAME_CHARS_MAX} characters"))
        })
    }

    /// The queue in the path, as it is now.
    pub(super) async fn known_queue(&self) -> Result<QueueStats, OcypodError> {
        let name = self.queue()?;
        let found = self.app.call_store(self.app.store.queue(name.clone())).await?;
        found.filter(|report| report.queue.profile == Profile::Ocypod).ok_or_else(|| OcypodError::no_queue(&name))
    }

    /// The body, of JSON and not too long.
    pub(super) fn json(self, bytes_max: usize) -> Result<Json, OcypodError> {
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
        Ok(Json(body))
    }

    /// The body of a call about a value that may have `payload_max` bytes.
    pub(super) fn json_around(self, payload_max: u32) -> Result<Json, OcypodError> {
        self.json(usize::try_from(payload_max).unwrap_or(usize::MAX).saturating_add(ENVELOPE_BYTES_MAX))
    }
}

/// Whether the dialect can spell a name.
pub(super) fn is_valid_queue_name(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-');
    !name.is_empty() && name.bytes().all(allowed)
}

/// What a body may have where no queue says otherwise.
pub(super) fn payload_max() -> u32 {
    Settings::of_profile(Profile::Ocypod).intake.payload_max
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(given), None) = (kinds.next(), kinds.next()) else { return false };
    let essence = given.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let essence = essence.to_ascii_lowercase();
    essence == b"application/json" || (essence.ends_with(b"+json") && essence.contains(&b'/'))
}

#[derive(Debug)]
pub(super) struct Json(JsonBody);

impl Json {
    /// An object. Fields that nobody knows are ignored.
    pub(super) fn object<'a, T: Deserialize<'a>>(&'a self) -> Result<T, OcypodError> {
        // serde would take an array of the fields' values for an object.
        let first = self.0.bytes().iter().find(|byte| !byte.is_ascii_whitespace());
        if first.is_some_and(|first| *first != b'{') && serde_json::from_slice::<IgnoredAny>(self.0.bytes()).is_ok() {
            return Err(unreadable("invalid type, expected an object"));
        }
        let mut reader = serde_json::Deserializer::from_slice(self.0.bytes());
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let complaint = error.into_inner();
            if path == "." { unreadable(complaint) } else { unreadable(format!("{path}: {complaint}")) }
        })?;
        reader.end().map_err(unreadable)?;
        Ok(value)
    }

    /// Any value, as it stands.
    pub(super) fn value(&self) -> Result<Bytes, OcypodError> {
        let raw: &serde_json::value::RawValue = serde_json::from_slice(self.0.bytes()).map_err(unreadable)?;
        Ok(Bytes::copy_from_slice(raw.get().as_bytes()))
    }
}

fn unreadable(complaint: impl std::fmt::Display) -> OcypodError {
    let text: String = format!("Json deserialize error: {complaint}").chars().take(400).collect();
    OcypodError::unreadable(StatusCode::BAD_REQUEST, text)
}
