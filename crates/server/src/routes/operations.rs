//! `/v1/operations`: start, list, read, continue, stop, undo.

use axum::http::StatusCode;
use longshore_api::ErrorCode;
use longshore_api::operation::{NewOperation, OperationStarted, Operations};
use longshore_core::Timestamp;
use longshore_core::id::OperationId;
use longshore_core::limits::{BATCH_ITEMS_MAX, OPERATION_CANARY_MAX, OPERATION_RATE_MAX, OPERATIONS_MAX};
use longshore_core::operation::{Canary, OperationProgress};
use longshore_core::refusal::Refusal;

use crate::access::CallerState;
use crate::operations::convert::to_wire;
use crate::operations::selection::Selection;
use crate::operations::storage::{self, StoredOperation};
use crate::state::AppState;
use crate::wire::body::{JsonBody, NoBody};
use crate::wire::path::OperationPath;
use crate::wire::problem::ApiError;
use crate::wire::query::{NoQuery, Query};
use crate::wire::response::{ApiResult, json, ok};

/// Rows of a page if the query has no limit.
const LIMIT_DEFAULT: usize = 100;
/// Pages that a request counts itself; a longer count goes on in the background.
const COUNTED_PAGES: usize = 2;

/// `POST /v1/operations`
pub(crate) async fn start(CallerState(app): CallerState<AppState>, _: NoQuery, body: JsonBody) -> ApiResult {
    let NewOperation { action, filter, rate, canary, dry_run } = body.required()?;
    check_range("rate", rate, OPERATION_RATE_MAX)?;
    check_range("canary", canary, OPERATION_CANARY_MAX)?;
    let selection = Selection::parse(filter.clone())?;
    check_queue(&app, &selection).await?;
    if app.call_store(Box::pin(storage::active(&*app.store, OPERATIONS_MAX))).await?.len() >= OPERATIONS_MAX {
        let detail = format!("{OPERATIONS_MAX} operations run, wait or can be undone: stop one, or wait 5 minutes");
        return Err(ApiError::new(ErrorCode::IllegalTransition, detail));
    }
    let now = app.now();
    let last = app.call_store(Box::pin(selection.last(&*app.store))).await?;
    let matched = app.call_store(Box::pin(selection.counter(&*app.store))).await?;
    let mut operation = OperationProgress::new(action, last, matched, now);
    operation.rate = rate;
    operation.canary = canary.map(|size| Canary { size, ..Canary::default() });
    operation.dry_run = dry_run.unwrap_or(false);
    if !operation.count.is_complete {
        let count = selection.count(&*app.store, operation.count.before, COUNTED_PAGES);
        let (matched, before) = app.call_store(Box::pin(count)).await?;
        operation.record_count(matched, before, now);
    }
    operation.start(now);
    let id = app.operations.new_id(now);
    let new = StoredOperation::new(id, filter, operation);
    app.operations.on_change(id);
    app.call_store(Box::pin(storage::create(&*app.store, &new))).await?;
    app.operations.on_change(id);
    let count = new.operation.count;
    let started = OperationStarted { id: id.to_string(), matched: count.matched, counted: count.is_complete };
    json(StatusCode::ACCEPTED, &started)
}

fn check_range(field: &str, value: Option<u32>, most: u32) -> Result<(), ApiError> {
    match value {
        Some(value) if !(1..=most).contains(&value) => {
            Err(ApiError::validation(field, &format!("must be 1-{most}; leave it out for none")))
        }
        Some(_) | None => Ok(()),
    }
}

async fn check_queue(app: &AppState, selection: &Selection) -> Result<(), ApiError> {
    let Some(queue) = selection.queue() else {
        if app.is_restricted() {
            let detail = "an operation without a queue needs a token for the queues \"*\": set \"filter.queue\"";
            return Err(ApiError::new(ErrorCode::Forbidden, detail));
        }
        return Ok(());
    };
    let exists = app.can_see(queue) && app.call_store(app.store.queue(queue.clone())).await?.is_some();
    if exists { Ok(()) } else { Err(Refusal::QueueNotFound.into()) }
}

/// `GET /v1/operations`
pub(crate) async fn list(CallerState(app): CallerState<AppState>, mut query: Query) -> ApiResult {
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let id = |text: &str| text.parse::<OperationId>().ok();
    let before = query.parse_with("cursor", "must be \"next\" of an earlier page", id)?;
    query.end()?;
    let mut page = app.call_store(Box::pin(storage::list(&*app.store, before, limit + 1))).await?;
    let has_more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| has_more).map(|last| last.id.to_string());
    let mut operations = Vec::new();
    for stored in page.iter().filter(|stored| is_visible(&app, stored)) {
        operations.push(app.call_store(Box::pin(to_wire(&*app.store, stored, app.now()))).await?);
    }
    ok(&Operations { operations, next })
}

/// `GET /v1/operations/{id}`
pub(crate) async fn get(
    CallerState(app): CallerState<AppState>,
    OperationPath(id): OperationPath,
    _: NoQuery,
) -> ApiResult {
    let found = app.call_store(Box::pin(storage::read(&*app.store, id))).await?;
    let stored = found.filter(|stored| is_visible(&app, stored)).ok_or_else(not_found)?;
    respond(&app, StatusCode::OK, &stored).await
}

/// `POST /v1/operations/{id}/continue`: treats the rest after the canary.
pub(crate) async fn resume(
    CallerState(app): CallerState<AppState>,
    OperationPath(id): OperationPath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    let stored = change(&app, id, |operation, now| operation.resume(now).map(|()| true)).await?;
    respond(&app, StatusCode::OK, &stored).await
}

/// `POST /v1/operations/{id}/stop`
pub(crate) async fn stop(
    CallerState(app): CallerState<AppState>,
    OperationPath(id): OperationPath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    let stored = change(&app, id, OperationProgress::stop).await?;
    respond(&app, StatusCode::OK, &stored).await
}

/// `POST /v1/operations/{id}/undo`
pub(crate) async fn undo(
    CallerState(app): CallerState<AppState>,
    OperationPath(id): OperationPath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    let stored = change(&app, id, |operation, now| operation.start_undo(now).map(|()| true)).await?;
    respond(&app, StatusCode::ACCEPTED, &stored).await
}

async fn change(
    app: &AppState,
    id: OperationId,
    mut change: impl FnMut(&mut OperationProgress, Timestamp) -> Result<bool, Refusal>,
) -> Result<StoredOperation, ApiError> {
    app.operations.on_change(id);
    let changed = storage::change(&*app.store, id, |stored, now| {
        if !is_visible(app, stored) {
            return Err(not_found());
        }
        Ok(change(&mut stored.operation, now)?)
    });
    let changed = changed.await?.ok_or_else(not_found)?;
    app.operations.on_change(id);
    Ok(changed)
}

async fn respond(app: &AppState, status: StatusCode, stored: &StoredOperation) -> ApiResult {
    json(status, &app.call_store(Box::pin(to_wire(&*app.store, stored, app.now()))).await?)
}

/// Whether the caller may know of an operation: it sees its queue, or all queues.
fn is_visible(app: &AppState, stored: &StoredOperation) -> bool {
    match stored.filter.queue.as_deref().map(longshore_core::id::QueueName::new) {
        Some(Ok(queue)) => app.can_see(&queue),
        Some(Err(_)) | None => !app.is_restricted(),
    }
}

fn not_found() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "there is no such operation")
}
