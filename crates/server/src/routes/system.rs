//! The server itself: health, info, metrics, virtual clock, OpenAPI.

use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use longshore_api::system::{Advance, Clock, Health, Info, StoreInfo};
use longshore_api::{Duration as WireDuration, ErrorCode};
use longshore_store::StoreHealth;
use tokio::time::timeout;

use crate::access::CallerState as State;
use crate::background::metrics::exposition;
use crate::convert::time;
use crate::openapi;
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, JSON, ok};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A store that needs longer for its health is not ready.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// `GET /livez`: the process answers.
pub(crate) async fn livez(_: NoQuery) -> ApiResult {
    ok(&Health { status: "ok".to_owned() })
}

/// `GET /readyz`: the store accepts new jobs and the server is not stopping.
pub(crate) async fn readyz(State(app): State<AppState>, _: NoQuery) -> ApiResult {
    let not_ready = |why: &str| ApiError::new(ErrorCode::StoreUnavailable, why);
    if app.stopping.is_cancelled() {
        return Err(not_ready("the server is stopping"));
    }
    if app.store_health.has_failed() {
        return Err(not_ready("the store has failed: restart the server"));
    }
    match store_health(&app).await.refusing {
        None => ok(&Health { status: "ready".to_owned() }),
        Some(why) => Err(not_ready(&format!("new jobs are rejected: {why}"))),
    }
}

/// Returns the health of the store. A store that does not answer counts as rejecting new jobs.
pub(super) async fn store_health(app: &AppState) -> StoreHealth {
    let refusing = |why: String| StoreHealth { refusing: Some(why), ..StoreHealth::default() };
    match timeout(HEALTH_TIMEOUT, app.store.health()).await {
        Ok(Ok(health)) => health,
        Ok(Err(error)) => {
            app.on_store_error(&error);
            refusing(error.cause())
        }
        Err(_) => refusing(format!("store timed out after {} s", HEALTH_TIMEOUT.as_secs())),
    }
}

/// `GET /v1/info`
pub(crate) async fn info(State(app): State<AppState>, _: NoQuery) -> ApiResult {
    let health = store_health(&app).await;
    ok(&Info {
        name: "longshore".to_owned(),
        version: VERSION.to_owned(),
        api: "v1".to_owned(),
        store: StoreInfo {
            kind: app.about.kind.clone(),
            durability: app.about.durability.clone(),
            writable: health.writable(),
            refusing: health.refusing,
            reserve_bytes: health.reserve_bytes,
            free_bytes: health.free_bytes,
        },
        now: time(app.now()),
        virtual_clock: app.virtual_time.is_some(),
        default_profile: app.default_profile,
        auto_queues: app.auto_queues,
        uptime: WireDuration::from_secs(app.uptime().as_secs()),
    })
}

/// `GET /metrics`, in the text format of Prometheus.
pub(crate) async fn metrics(State(app): State<AppState>, _: NoQuery) -> ApiResult {
    exposition_of(&app).await
}

/// Returns the metrics as a response.
pub(crate) async fn exposition_of(app: &AppState) -> ApiResult {
    let queues = app.call_store(app.store.queues()).await?;
    let health = store_health(app).await;
    let store = app.call_store(app.store.metrics()).await?;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], exposition(app, &queues, &health, &store)).into_response())
}

/// `GET /v1/clock`, in virtual time only.
pub(crate) async fn clock(State(app): State<AppState>, _: NoQuery) -> ApiResult {
    if app.virtual_time.is_none() {
        return Err(ApiError::new(ErrorCode::NotFound, REAL_TIME));
    }
    ok(&Clock { now: time(app.now()) })
}

/// `POST /v1/clock/advance`, in virtual time only: answers when all due work is done.
pub(crate) async fn advance_clock(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> ApiResult {
    let virtual_time = app.virtual_time.as_ref();
    let virtual_time = virtual_time.ok_or_else(|| ApiError::new(ErrorCode::NotFound, REAL_TIME))?;
    let Advance { by } = body.required()?;
    let now = app.report_error(virtual_time.advance(by).await)?;
    app.webhooks.wake();
    ok(&Clock { now: time(now) })
}

/// Detail of 404 for the clock's routes in real time.
const REAL_TIME: &str =
    "this server runs in real time: start it with --virtual-clock to have a clock to read and advance";

/// `GET /openapi.json`
pub(crate) async fn openapi(_: NoQuery) -> ApiResult {
    Ok(([(header::CONTENT_TYPE, JSON)], openapi::json()).into_response())
}
