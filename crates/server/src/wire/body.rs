//! Bodies of requests: bounded in bytes and in time, of the right type.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use longshore_api::ErrorCode;
use longshore_api::admin::EmptyBody;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::json;
use super::problem::ApiError;
use crate::app::{AppState, BODY_PERMIT_BYTES};

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
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let json = is_json(&parts.headers);
        // Nothing of a body that cannot be taken is read.
        if announced(&parts.headers) > 0 && !json {
            return Err(not_json());
        }
        let body = Self::whole(app, &parts.headers, body).await?;
        if !body.bytes.is_empty() && !json {
            return Err(not_json());
        }
        Ok(body)
    }
}

fn announced(headers: &HeaderMap) -> usize {
    headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// What a large body may take of the memory that all have for bodies. It is charged for what has come, not for what was announced: whoever
/// announces much and sends little is in nobody's way.
pub(crate) struct BodyBudget<'a> {
    app: &'a AppState,
    held: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

/// Room is set aside in steps of this size.
const STEP: usize = 256 << 10;

impl<'a> BodyBudget<'a> {
    pub(crate) fn new(app: &'a AppState) -> Self {
        Self { app, held: None, bytes: SMALL }
    }

    /// Waits until there is room for so many bytes in all.
    async fn grow_to(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let more = (bytes - self.bytes).next_multiple_of(STEP);
        let units = u32::try_from(more.div_ceil(BODY_PERMIT_BYTES)).unwrap_or(u32::MAX);
        let patience = self.app.limits.body_timeout;
        let room = timeout(patience, Arc::clone(&self.app.body_budget).acquire_many_owned(units)).await;
        let crowded = || ApiError::new(ErrorCode::RateLimited, "too many large bodies at once: try again");
        let room = room.ok().and_then(Result::ok).ok_or_else(crowded)?;
        match &mut self.held {
            Some(held) => held.merge(room),
            None => self.held = Some(room),
        }
        self.bytes += more;
        Ok(())
    }
}

impl JsonBody {
    /// All of a body, whatever its type.
    pub(crate) async fn whole(app: &AppState, headers: &HeaderMap, body: Body) -> Result<Self, ApiError> {
        let (announced, most) = (announced(headers), app.limits.body_bytes_max);
        if announced > most {
            return Err(too_large(most));
        }
        let mut room = BodyBudget::new(app);
        let bytes = collect(body, announced, most, &mut room).await?;
        Ok(Self { bytes, _room: room.held })
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The text of a body that must be there.
    pub(crate) fn text(&self) -> Result<&str, ApiError> {
        Ok(json::text(&self.bytes)?)
    }

    /// An object that must be there.
    pub(crate) fn required<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        Ok(json::object(self.text()?)?)
    }

    /// An object; none at all is `{}`.
    pub(crate) fn object<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        if self.bytes.is_empty() { Ok(json::object("{}")?) } else { self.required() }
    }
}

/// Of a call that takes no body: none and `{}` are both fine.
#[derive(Debug)]
pub(crate) struct NoBody;

impl FromRequest<AppState> for NoBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, ApiError> {
        let EmptyBody {} = JsonBody::from_request(request, app).await?.object()?;
        Ok(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(given), None) = (types.next(), types.next()) else { return false };
    let essence = given.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn not_json() -> ApiError {
    ApiError::new(ErrorCode::UnsupportedMediaType, "a body needs \"Content-Type: application/json\"")
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(ErrorCode::PayloadTooLarge, format!("the body may have at most {bytes_max} bytes"))
}

/// Reads a body whose parts keep coming, and not too slowly.
pub(crate) async fn collect(
    mut body: Body,
    announced: usize,
    bytes_max: usize,
    room: &mut BodyBudget<'_>,
) -> Result<Bytes, ApiError> {
    let mut whole = BytesMut::new();
    let (started, patience) = (Instant::now(), room.app.limits.body_timeout);
    loop {
        let earned = Duration::from_millis(whole.len() as u64 * 1_000 / BYTES_PER_SECOND_MIN);
        let frame = timeout_at(started + patience + earned, body.frame()).await;
        let frame = frame.map_err(|_| ApiError::bad_request("the body did not arrive in time"))?;
        let Some(frame) = frame else { return Ok(whole.freeze()) };
        let frame = frame.map_err(|_| ApiError::bad_request("the body ended early or is not framed correctly"))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        if whole.is_empty() && data.len() == announced {
            // Most bodies come in one piece.
            return Ok(data);
        }
        room.grow_to(whole.len() + data.len()).await?;
        whole.extend_from_slice(&data);
    }
}
