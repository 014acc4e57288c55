//! `/v1/webhooks`: endpoints, and `/v1/deliveries`: what was sent to them.

use axum::http::StatusCode;
use longshore_api::ErrorCode;
use longshore_api::webhook::{PutWebhook, WebhookDeliveries, WebhookDelivery, WebhookList};
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Refusal;
use longshore_engine::{CALLBACKS, Delivery, DeliveryKey};
use longshore_store::JobRef;

use super::jobs;
use crate::access::CallerState;
use crate::state::AppState;
use crate::webhooks::deliveries;
use crate::webhooks::endpoint::{self, ENDPOINTS_MAX, Endpoint, EndpointSettings};
use crate::wire::body::{JsonBody, NoBody};
use crate::wire::path::{DeliveryPath, JobPath, WebhookPath};
use crate::wire::problem::ApiError;
use crate::wire::query::{NoQuery, Query};
use crate::wire::response::{ApiResult, created, json, no_content, ok};

/// Deliveries of a page, unless the request asks for another number.
const PAGE_DEFAULT: usize = 100;

/// `GET /v1/webhooks`
pub(crate) async fn list(CallerState(app): CallerState<AppState>, _: NoQuery) -> ApiResult {
    let records = app.call_store(Box::pin(endpoint::read_all(&*app.store))).await?;
    let endpoints = records.iter().filter_map(Endpoint::of_record).filter(|endpoint| !endpoint.is_reserved());
    let now = app.now();
    ok(&WebhookList { webhooks: endpoints.map(|endpoint| endpoint.to_wire(now)).collect() })
}

/// `GET /v1/webhooks/{name}`
pub(crate) async fn get(
    CallerState(app): CallerState<AppState>,
    WebhookPath(name): WebhookPath,
    _: NoQuery,
) -> ApiResult {
    ok(&find(&app, &name).await?.to_wire(app.now()))
}

/// `PUT /v1/webhooks/{name}`: 201 creates an endpoint and shows its secret, 200 replaces it.
pub(crate) async fn put(
    CallerState(app): CallerState<AppState>,
    WebhookPath(name): WebhookPath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let put: PutWebhook = body.required()?;
    endpoint::check_name(&name)?;
    let settings = EndpointSettings::read(put)?;
    let existing = app.call_store(Box::pin(endpoint::read_all(&*app.store))).await?;
    if existing.len() > ENDPOINTS_MAX && !existing.iter().any(|record| record.key == name.as_bytes()) {
        let reason = format!("cannot be created: there are {ENDPOINTS_MAX} endpoints, the most that are allowed");
        return Err(ApiError::validation("name", &reason));
    }
    let written = app.call_store(Box::pin(endpoint::put(&*app.store, &name, &settings))).await?;
    let put = written.ok_or_else(busy)?;
    app.webhooks.wake();
    if put.created {
        created(&put.endpoint.to_wire_with_secret(app.now()))
    } else {
        ok(&put.endpoint.to_wire(app.now()))
    }
}

/// `DELETE /v1/webhooks/{name}`: its pending deliveries fail.
pub(crate) async fn delete(
    CallerState(app): CallerState<AppState>,
    WebhookPath(name): WebhookPath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    if name == CALLBACKS {
        return Err(Refusal::Illegal("the endpoint \"callbacks\" signs the callbacks of jobs").into());
    }
    if app.call_store(Box::pin(endpoint::delete(&*app.store, &name))).await? {
        app.webhooks.wake();
        return no_content();
    }
    Err(endpoint::not_found(&name))
}

/// `POST /v1/webhooks/{name}/rotate`: a new secret. The old one signs too for 24 hours.
pub(crate) async fn rotate(
    CallerState(app): CallerState<AppState>,
    WebhookPath(name): WebhookPath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    let rotated = app.call_store(Box::pin(endpoint::rotate(&*app.store, &name))).await?.ok_or_else(busy)?;
    let endpoint = rotated.ok_or_else(|| endpoint::not_found(&name))?;
    ok(&endpoint.to_wire_with_secret(app.now()))
}

/// `POST /v1/webhooks/{name}/test`: sends `webhook.test`, once.
pub(crate) async fn test(
    CallerState(app): CallerState<AppState>,
    WebhookPath(name): WebhookPath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    let endpoint = find(&app, &name).await?;
    if endpoint.is_reserved() {
        return Err(Refusal::Illegal("the endpoint \"callbacks\" has no URL of its own").into());
    }
    check_enabled(&endpoint)?;
    let random = app.webhooks.random();
    let (key, delivery) = app.call_store(Box::pin(deliveries::add_test(&*app.store, &endpoint, random))).await?;
    app.webhooks.wake();
    json(StatusCode::ACCEPTED, &deliveries::to_wire(key, &delivery, Some(&endpoint.url)))
}

/// `GET /v1/webhooks/{name}/deliveries`: newest first.
pub(crate) async fn deliveries_of_endpoint(
    CallerState(app): CallerState<AppState>,
    WebhookPath(name): WebhookPath,
    mut query: Query,
) -> ApiResult {
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(PAGE_DEFAULT);
    let before = query.parse_with("cursor", "must be `next` of a page", parse_cursor)?;
    query.end()?;
    let url = match find(&app, &name).await {
        Ok(endpoint) => endpoint.url,
        // Callbacks may have been recorded before their first attempt.
        Err(_) if name == CALLBACKS => String::new(),
        Err(error) => return Err(error),
    };
    let page = deliveries::of_endpoint(&*app.store, &name, before, limit);
    let (found, next) = app.call_store(Box::pin(page)).await?;
    let deliveries = found.iter().map(|(key, delivery)| deliveries::to_wire(*key, delivery, Some(&url))).collect();
    ok(&WebhookDeliveries { deliveries, next: next.map(|key| to_hex(&key)) })
}

/// `GET /v1/jobs/{id}/deliveries`: oldest first.
pub(crate) async fn deliveries_of_job(
    CallerState(app): CallerState<AppState>,
    JobPath(id): JobPath,
    _: NoQuery,
) -> ApiResult {
    let job = jobs::get::find(&app, id).await?;
    let found = deliveries::of_job(&*app.store, DeliveryKey::prefix_of_job(job.seq), BATCH_ITEMS_MAX);
    let mut shown = Vec::new();
    for (key, delivery) in app.call_store(Box::pin(found)).await? {
        shown.push(to_wire(&app, key, &delivery).await?);
    }
    if app.is_restricted() {
        // The path of an endpoint may be its secret.
        shown.iter_mut().for_each(|delivery| delivery.url = delivery.url.take().map(|url| without_path(&url)));
    }
    ok(&WebhookDeliveries { deliveries: shown, next: None })
}

/// `POST /v1/deliveries/{id}/redeliver`: an attempt now, with the same `webhook-id`.
pub(crate) async fn redeliver(
    CallerState(app): CallerState<AppState>,
    DeliveryPath(key): DeliveryPath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    let missing = || ApiError::new(ErrorCode::NotFound, "there is no such delivery");
    let delivery = app.call_store(Box::pin(deliveries::find(&*app.store, key))).await?.ok_or_else(missing)?;
    // A delivery of a job that the caller cannot see does not exist.
    if app.is_restricted() {
        let job = app.call_store(app.store.get(vec![JobRef::Seq(key.job())])).await?;
        job.into_iter().next().flatten().ok_or_else(missing)?;
    }
    if delivery.url.is_none() {
        check_enabled(&find(&app, &delivery.endpoint).await?)?;
    }
    let delivery = app.call_store(Box::pin(deliveries::redeliver(&*app.store, key))).await?.ok_or_else(missing)?;
    app.webhooks.wake();
    json(StatusCode::ACCEPTED, &to_wire(&app, key, &delivery).await?)
}

/// Returns scheme, host and port of a URL.
fn without_path(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}/…")
}

async fn to_wire(app: &AppState, key: DeliveryKey, delivery: &Delivery) -> Result<WebhookDelivery, ApiError> {
    let endpoint = match &delivery.url {
        Some(_) => None,
        None => app.call_store(Box::pin(endpoint::find(&*app.store, &delivery.endpoint))).await?,
    };
    Ok(deliveries::to_wire(key, delivery, endpoint.as_ref().map(|endpoint| &*endpoint.url)))
}

async fn find(app: &AppState, name: &str) -> Result<Endpoint, ApiError> {
    let endpoint = match name {
        // A read creates it.
        CALLBACKS => app.call_store(Box::pin(endpoint::callbacks(&*app.store))).await?,
        _ => app.call_store(Box::pin(endpoint::find(&*app.store, name))).await?,
    };
    endpoint.ok_or_else(|| endpoint::not_found(name))
}

fn check_enabled(endpoint: &Endpoint) -> Result<(), ApiError> {
    let reason = "the endpoint is disabled: enable it with PUT first";
    if endpoint.enabled { Ok(()) } else { Err(Refusal::Illegal(reason).into()) }
}

fn busy() -> ApiError {
    ApiError::new(ErrorCode::StoreUnavailable, "other requests change the endpoint at the same time: try again")
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_cursor(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() && text.len() <= 512 { pairs.iter().map(byte).collect() } else { None }
}
