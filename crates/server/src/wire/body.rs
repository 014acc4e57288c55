//! Request bodies: limited in bytes and time, with the right content type.

use std::pin::pin;
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
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::json;
use super::problem::ApiError;
use crate::state::{AppState, BODY_PERMIT_BYTES};

/// A JSON body; empty if the request has none.
#[derive(Debug)]
pub(crate) struct JsonBody {
    bytes: Bytes,
    /// Held as long as the bytes.
    _budget: Option<OwnedSemaphorePermit>,
}

/// Bodies up to this size are not counted against the budget.
pub(crate) const SMALL: usize = 64 << 10;
/// Time for the rest of a body when the server stops: a body that stalls does not hold it.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// A client that sends slower than this, over the whole body, times out.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

impl FromRequest<AppState> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        Self::of_stream(app, &parts.headers, body).await
    }
}

fn announced(headers: &HeaderMap) -> usize {
    headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// The share of one large body in the memory for all bodies.
///
/// It grows with the received bytes, not with `Content-Length`: a client that announces much and
/// sends little does not block others.
pub(crate) struct BodyBudget<'a> {
    app: &'a AppState,
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

/// The budget grows in steps of this size.
const STEP: usize = 256 << 10;

impl<'a> BodyBudget<'a> {
    pub(crate) fn new(app: &'a AppState) -> Self {
        Self { app, permit: None, bytes: SMALL }
    }

    /// Waits until the budget covers `bytes`.
    async fn grow_to(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let more = (bytes - self.bytes).next_multiple_of(STEP);
        let permits = u32::try_from(more.div_ceil(BODY_PERMIT_BYTES)).unwrap_or(u32::MAX);
        let wait = self.app.limits.body_timeout;
        let more_permits = timeout(wait, Arc::clone(&self.app.body_budget).acquire_many_owned(permits)).await;
        let crowded = || ApiError::new(ErrorCode::RateLimited, "too many large bodies at once: try again");
        let more_permits = more_permits.ok().and_then(Result::ok).ok_or_else(crowded)?;
        match &mut self.permit {
            Some(permit) => permit.merge(more_permits),
            None => self.permit = Some(more_permits),
        }
        self.bytes += more;
        Ok(())
    }
}

impl JsonBody {
    /// Reads a body, which must be JSON.
    pub(crate) async fn of_stream(app: &AppState, headers: &HeaderMap, body: Body) -> Result<Self, ApiError> {
        let json = is_json(headers);
        // A body of the wrong type is not read.
        if announced(headers) > 0 && !json {
            return Err(not_json());
        }
        let body = Self::whole(app, headers, body).await?;
        if !body.bytes.is_empty() && !json {
            return Err(not_json());
        }
        Ok(body)
    }

    /// Returns a small body that was read already. It must be JSON.
    pub(crate) fn of_bytes(headers: &HeaderMap, bytes: Bytes) -> Result<Self, ApiError> {
        if !bytes.is_empty() && !is_json(headers) {
            return Err(not_json());
        }
        Ok(Self { bytes, _budget: None })
    }

    /// Reads a body of any content type.
    pub(crate) async fn whole(app: &AppState, headers: &HeaderMap, body: Body) -> Result<Self, ApiError> {
        let (announced, bytes_max) = (announced(headers), app.limits.body_bytes_max);
        if announced > bytes_max {
            return Err(too_large(bytes_max));
        }
        let mut budget = BodyBudget::new(app);
        let bytes = collect(body, announced, bytes_max, &mut budget).await?;
        Ok(Self { bytes, _budget: budget.permit })
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the text of a required body.
    pub(crate) fn text(&self) -> Result<&str, ApiError> {
        Ok(json::text(&self.bytes)?)
    }

    /// Parses a required object.
    pub(crate) fn required<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        Ok(json::object(self.text()?)?)
    }

    /// Parses an object; an empty body is `{}`.
    pub(crate) fn object<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        if self.bytes.is_empty() { Ok(json::object("{}")?) } else { self.required() }
    }
}

/// The body of a route without one: empty or `{}`.
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
    let (Some(kind), None) = (types.next(), types.next()) else { return false };
    let essence = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn not_json() -> ApiError {
    ApiError::new(ErrorCode::UnsupportedMediaType, "a body needs \"Content-Type: application/json\"")
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(ErrorCode::PayloadTooLarge, format!("the body must have at most {bytes_max} bytes"))
}

/// Resolves when the server stops, after the time that bodies in transit get.
async fn end_of_grace(stopping: &CancellationToken) {
    stopping.cancelled().await;
    sleep(STOP_GRACE).await;
}

/// Reads a body. Fails if the client pauses too long or sends too slowly.
pub(crate) async fn collect(
    mut body: Body,
    announced: usize,
    bytes_max: usize,
    budget: &mut BodyBudget<'_>,
) -> Result<Bytes, ApiError> {
    let mut whole = BytesMut::new();
    let (started, allowance) = (Instant::now(), budget.app.limits.body_timeout);
    let mut stopped = pin!(end_of_grace(&budget.app.stopping));
    loop {
        let earned = Duration::from_millis(whole.len() as u64 * 1_000 / BYTES_PER_SECOND_MIN);
        let frame = tokio::select! {
            biased;
            frame = timeout_at(started + allowance + earned, body.frame()) => frame,
            () = &mut stopped => {
                let detail = "the server stops, and the body has not arrived: nothing was applied";
                return Err(ApiError::new(ErrorCode::StoreUnavailable, detail));
            }
        };
        let frame = frame.map_err(|_| ApiError::bad_request("the body did not arrive in time"))?;
        let Some(frame) = frame else { return Ok(whole.freeze()) };
        let frame = frame.map_err(|_| ApiError::bad_request("the body ended early or is not framed correctly"))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        if whole.is_empty() && data.len() == announced {
            // Most bodies arrive in one frame.
            return Ok(data);
        }
        budget.grow_to(whole.len() + data.len()).await?;
        if whole.is_empty() {
            // A bulk submission is copied once. A client that announces more must send it first.
            whole.reserve(announced.clamp(data.len(), (SMALL + STEP).max(data.len())));
        }
        whole.extend_from_slice(&data);
    }
}
