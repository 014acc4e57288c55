//! Bodies of requests: bounded in bytes and in time, of the right type.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use longshore_api::ErrorCode;
use longshore_api::operate::Nothing;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::json;
use super::problem::Failure;
use crate::app::{AppState, BODY_UNIT};

/// A body in JSON; empty if there was none.
#[derive(Debug)]
pub(crate) struct JsonBody {
    bytes: Bytes,
    /// Held while the bytes are.
    _room: Option<OwnedSemaphorePermit>,
}

/// Bodies up to this size need no room set aside.
pub(crate) const SMALL: usize = 64 << 10;
/// A client that sends slower than this many bytes a second, over the whole body, has had its time.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

impl FromRequest<AppState> for JsonBody {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        let most = app.limits.body_bytes_max;
        let announced = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let chunked = parts.headers.contains_key(header::TRANSFER_ENCODING);
        let announced: usize = announced.unwrap_or(0);
        let json = is_json(&parts.headers);
        // Nothing of a body that cannot be taken is read.
        if announced > 0 && !json {
            return Err(not_json());
        }
        if announced > most {
            return Err(too_large(most));
        }
        let room = if chunked { most } else { announced };
        let room = if room > SMALL && json { Some(set_aside(app, room).await?) } else { None };
        let bytes = collect(body, announced, most, app.limits.body_timeout).await?;
        if !bytes.is_empty() && !json {
            return Err(not_json());
        }
        Ok(Self { bytes, _room: room })
    }
}

/// Waits until there is room for a large body: many at once must not fill the memory.
async fn set_aside(app: &AppState, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
    let units = u32::try_from(bytes.div_ceil(BODY_UNIT)).unwrap_or(u32::MAX);
    let room = timeout(app.limits.body_timeout, Arc::clone(&app.bodies).acquire_many_owned(units)).await;
    let room = room.ok().and_then(Result::ok);
    room.ok_or_else(|| Failure::new(ErrorCode::RateLimited, "too many large bodies at once: try again"))
}

impl JsonBody {
    /// The text of a body that must be there.
    pub(crate) fn text(&self) -> Result<&str, Failure> {
        Ok(json::text(&self.bytes)?)
    }

    /// An object that must be there.
    pub(crate) fn required<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Failure> {
        Ok(json::object(self.text()?)?)
    }

    /// An object; none at all is `{}`.
    pub(crate) fn object<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Failure> {
        if self.bytes.is_empty() { Ok(json::object("{}")?) } else { self.required() }
    }
}

/// Of a call that takes no body: none and `{}` are both fine.
#[derive(Debug)]
pub(crate) struct NoBody;

impl FromRequest<AppState> for NoBody {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Failure> {
        let Nothing {} = JsonBody::from_request(request, app).await?.object()?;
        Ok(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(given), None) = (types.next(), types.next()) else { return false };
    let essence = given.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn not_json() -> Failure {
    Failure::new(ErrorCode::UnsupportedMediaType, "a body needs \"Content-Type: application/json\"")
}

fn too_large(bytes_max: usize) -> Failure {
    Failure::new(ErrorCode::PayloadTooLarge, format!("the body may have at most {bytes_max} bytes"))
}

/// Reads a body whose parts keep coming, and not too slowly.
pub(crate) async fn collect(
    mut body: Body,
    announced: usize,
    bytes_max: usize,
    patience: Duration,
) -> Result<Bytes, Failure> {
    let mut whole = BytesMut::new();
    let started = Instant::now();
    loop {
        let earned = Duration::from_millis(whole.len() as u64 * 1_000 / BYTES_PER_SECOND_MIN);
        let frame = timeout_at(started + patience + earned, body.frame()).await;
        let frame = frame.map_err(|_| Failure::bad_request("the body did not arrive in time"))?;
        let Some(frame) = frame else { return Ok(whole.freeze()) };
        let frame = frame.map_err(|_| Failure::bad_request("the body ended early or is not framed correctly"))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        if whole.is_empty() && data.len() == announced {
            // Most bodies come in one piece.
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
}
