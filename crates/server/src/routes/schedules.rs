//! `/v1/schedules`: list, create or replace, read, pause, resume, trigger, delete, ticks.

use std::sync::Arc;

use axum::http::StatusCode;
use longshore_api::ErrorCode;
use longshore_api::job::Submitted;
use longshore_api::schedule::{PauseSchedule, PutSchedule, Schedules, Ticks};
use longshore_core::ScheduleChange;
use longshore_core::Timestamp;
use longshore_core::id::{ScheduleName, validate_length};
use longshore_core::limits::{BATCH_ITEMS_MAX, PAUSE_NOTE_CHARS_MAX};
use longshore_core::refusal::Refusal;
use longshore_core::schedule::ticks::SCHEDULES_MAX;
use longshore_core::schedule::{DefinitionChange, JobSchedule, Schedule};
use longshore_engine::{Submission, SubmitRequest};

use crate::access::CallerState;
use crate::schedules::definition::{check, tick, to_wire, triggered_job};
use crate::schedules::storage::{self, StoredSchedule, Written};
use crate::state::AppState;
use crate::wire::body::{JsonBody, NoBody};
use crate::wire::path::SchedulePath;
use crate::wire::problem::ApiError;
use crate::wire::query::{NoQuery, Query};
use crate::wire::response::{ApiResult, created, json, no_content, ok};

/// Rows of a page if the query has no limit.
const LIMIT_DEFAULT: usize = 100;

/// `GET /v1/schedules`
pub(crate) async fn list(CallerState(app): CallerState<AppState>, mut query: Query) -> ApiResult {
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let name = |text: &str| ScheduleName::new(text).ok();
    let after = query.parse_with("cursor", "must be \"next\" of an earlier page", name)?;
    query.end()?;
    let is_visible = |schedule: &Schedule| app.can_see(&schedule.queue);
    let list = Box::pin(storage::list(&*app.store, after.as_ref(), limit, is_visible));
    let (page, has_more) = app.call_store(list).await?;
    let next = page.last().filter(|_| has_more).map(|last| last.schedule.name.to_string());
    let now = app.now();
    ok(&Schedules { schedules: page.iter().map(|stored| to_wire(stored, now)).collect::<Result<_, _>>()?, next })
}

/// `GET /v1/schedules/{name}`
pub(crate) async fn get(
    CallerState(app): CallerState<AppState>,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
) -> ApiResult {
    ok(&to_wire(&find(&app, &name).await?, app.now())?)
}

/// `PUT /v1/schedules/{name}`: 201 creates a schedule, 200 replaces it.
pub(crate) async fn put(
    CallerState(app): CallerState<AppState>,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let given: PutSchedule = body.required()?;
    let paused = given.paused;
    let schedule = check(&*app.store, app.default_profile, &name, given).await?;
    if !app.can_see(&schedule.queue) {
        return Err(Refusal::QueueNotFound.into());
    }
    let is_full = app.call_store(Box::pin(app.schedules.is_full(&*app.store))).await?;
    let (stored, written) = change(&app, &name, |present, now| match present {
        None if is_full => {
            let detail = format!("the store has {SCHEDULES_MAX} schedules, which is the limit");
            Err(ApiError::new(ErrorCode::Validation, detail))
        }
        None => {
            let (created_at, updated_at, counts_from) = (now, now, now);
            Ok((Schedule { created_at, updated_at, counts_from, ..schedule.clone() }, DefinitionChange::NewTimes))
        }
        Some(present) if !app.can_see(&present.queue) => Err(not_found()),
        Some(present) => {
            let mut schedule = schedule.clone();
            let change = schedule.replace(present, paused, now);
            Ok((schedule, change))
        }
    })
    .await?;
    let (status, change) = match written {
        Written::Created => (StatusCode::CREATED, Some(ScheduleChange::Created)),
        Written::Changed => (StatusCode::OK, Some(ScheduleChange::Changed)),
        Written::Nothing => (StatusCode::OK, None),
    };
    if let Some(change) = change {
        app.publish_schedule(&name, stored.schedule.queue.clone(), change).await;
    }
    json(status, &to_wire(&stored, app.now())?)
}

/// `DELETE /v1/schedules/{name}`
pub(crate) async fn delete(
    CallerState(app): CallerState<AppState>,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    let queue = find(&app, &name).await?.schedule.queue;
    if !app.call_store(Box::pin(storage::delete(&*app.store, &name))).await? {
        return Err(not_found());
    }
    app.schedules.on_delete(&name);
    app.publish_schedule(&name, queue, ScheduleChange::Deleted).await;
    no_content()
}

/// `POST /v1/schedules/{name}/pause`
pub(crate) async fn pause(
    CallerState(app): CallerState<AppState>,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let PauseSchedule { note } = body.object()?;
    validate_length("note", note.as_deref().unwrap_or_default(), PAUSE_NOTE_CHARS_MAX)?;
    set_paused(&app, &name, true, note.map(Arc::from)).await
}

/// `POST /v1/schedules/{name}/resume`
pub(crate) async fn resume(
    CallerState(app): CallerState<AppState>,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    set_paused(&app, &name, false, None).await
}

/// `POST /v1/schedules/{name}/trigger`: submits the job now. A trigger is not a tick.
pub(crate) async fn trigger(
    CallerState(app): CallerState<AppState>,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    let schedule = find(&app, &name).await?.schedule;
    let mut job = triggered_job(&schedule)?;
    job.schedule = Some(Box::new(JobSchedule { name, due_at: None }));
    let request = SubmitRequest::new(vec![Submission { queue: schedule.queue.clone(), job }]);
    let submitted = app.submit(request).await?.map_err(|refusal| ApiError::from(refusal.first))?;
    let Some(job) = submitted.first() else { return Err(ApiError::bad_request("no job was submitted")) };
    let (id, seq, state, duplicate) = (job.id.to_string(), job.seq.0, job.state, job.duplicate);
    created(&Submitted { id, seq, state, duplicate, same_payload: None })
}

/// `GET /v1/schedules/{name}/ticks`
pub(crate) async fn ticks(
    CallerState(app): CallerState<AppState>,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
) -> ApiResult {
    find(&app, &name).await?;
    let ticks = app.call_store(Box::pin(storage::ticks(&*app.store, &name))).await?;
    ok(&Ticks { ticks: ticks.iter().map(tick).collect() })
}

async fn set_paused(app: &AppState, name: &ScheduleName, paused: bool, note: Option<Arc<str>>) -> ApiResult {
    let (stored, written) = change(app, name, |present, now| {
        let mut schedule = present.filter(|present| app.can_see(&present.queue)).ok_or_else(not_found)?.clone();
        let change = schedule.set_paused(paused, note.clone(), now);
        Ok((schedule, change))
    })
    .await?;
    if written == Written::Changed {
        let change = if paused { ScheduleChange::Paused } else { ScheduleChange::Resumed };
        app.publish_schedule(name, stored.schedule.queue.clone(), change).await;
    }
    ok(&to_wire(&stored, app.now())?)
}

async fn change(
    app: &AppState,
    name: &ScheduleName,
    change: impl FnMut(Option<&Schedule>, Timestamp) -> Result<(Schedule, DefinitionChange), ApiError>,
) -> Result<(StoredSchedule, Written), ApiError> {
    let changed = storage::change(&*app.store, name, change).await?;
    app.schedules.on_change(name);
    Ok(changed)
}

async fn find(app: &AppState, name: &ScheduleName) -> Result<StoredSchedule, ApiError> {
    let found = app.call_store(Box::pin(storage::read(&*app.store, name))).await?;
    found.filter(|stored| app.can_see(&stored.schedule.queue)).ok_or_else(not_found)
}

fn not_found() -> ApiError {
    ApiError::new(ErrorCode::ScheduleNotFound, "there is no such schedule")
}
