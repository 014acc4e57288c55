//! Commands on one job: submit a held job, cancel, requeue, dead-letter, run now, edit, delete.

use axum::http::StatusCode;
use longshore_api::ErrorCode;
use longshore_api::admin::{Cancel, DeadLetter, Patch, Requeue as RequeueBody};
use longshore_api::enums::State as JobStateName;
use longshore_api::work::JobState;
use longshore_core::cancel::Force;
use longshore_core::edit::Edit;
use longshore_core::id::{JobId, JobType};
use longshore_core::refusal::Invalid;
use longshore_core::requeue::{Requeue, Reset};
use longshore_engine::{AdminCommand, AdminResponse};

use super::get::find;
use super::record::record_of;
use crate::access::CallerState as State;
use crate::convert::new_job::tags;
use crate::convert::{instant, shared};
use crate::state::AppState;
use crate::wire::body::{JsonBody, NoBody};
use crate::wire::path::JobPath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, json, no_content, ok};

/// `POST /v1/jobs/{id}/submit`
pub(crate) async fn submit_held(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, _: NoBody) -> ApiResult {
    change_state(&app, id, AdminCommand::SubmitHeld { id }).await
}

/// `POST /v1/jobs/{id}/cancel`: 200 cancelled it, 202 requested its worker to stop.
pub(crate) async fn cancel(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> ApiResult {
    let Cancel { reason, force } = body.object()?;
    let force = if force == Some(true) { Force::Now } else { Force::ByPolicy };
    let response = |state, cancel_requested| JobState { id: id.to_string(), state, cancel_requested };
    match app.admin(AdminCommand::Cancel { id, reason, force }).await? {
        AdminResponse::State { state, .. } => ok(&response(state, None)),
        AdminResponse::CancelRequested
        | AdminResponse::Done
        | AdminResponse::QueuePut { .. }
        | AdminResponse::Workflow { .. } => json(StatusCode::ACCEPTED, &response(JobStateName::Running, Some(true))),
    }
}

/// `POST /v1/jobs/{id}/requeue`: returns the job that will run, which may be a clone.
pub(crate) async fn requeue(
    State(app): State<AppState>,
    JobPath(id): JobPath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let RequeueBody { reset, run_at } = body.object()?;
    let counters = if reset.unwrap_or(true) { Reset::Zero } else { Reset::Keep };
    let how = Requeue { counters, run_at: run_at.map(instant) };
    change_state(&app, id, AdminCommand::Requeue { id, how }).await
}

/// `POST /v1/jobs/{id}/dead-letter`
pub(crate) async fn dead_letter(
    State(app): State<AppState>,
    JobPath(id): JobPath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let DeadLetter { reason } = body.object()?;
    change_state(&app, id, AdminCommand::DeadLetter { id, reason }).await
}

/// `POST /v1/jobs/{id}/run-now`
pub(crate) async fn run_now(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, _: NoBody) -> ApiResult {
    change_state(&app, id, AdminCommand::RunNow { id }).await
}

/// `PATCH /v1/jobs/{id}`
pub(crate) async fn patch(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> ApiResult {
    let edit = parse_patch(body.object()?)?;
    if edit.callback_url.is_some() {
        app.webhooks.expect_callbacks();
    }
    app.admin(AdminCommand::Edit { id, edit }).await?;
    ok(&record_of(&app, find(&app, id).await?).await?)
}

fn parse_patch(patch: Patch) -> Result<Edit, Invalid> {
    Ok(Edit {
        priority: patch.priority,
        job_type: patch.job_type.as_deref().map(JobType::new).transpose()?,
        tags: patch.tags.map(|list| tags(Some(list))).transpose()?,
        correlation_id: patch.correlation_id.map(shared),
        callback_url: patch.callback_url.map(shared),
        retry_limit: patch.retry.and_then(|retry| retry.limit),
    })
}

/// `DELETE /v1/jobs/{id}`
pub(crate) async fn delete(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, _: NoBody) -> ApiResult {
    app.admin(AdminCommand::Delete { id }).await?;
    app.dead_letters.on_delete(id);
    no_content()
}

/// Runs a command on one job. Returns its new state.
async fn change_state(app: &AppState, id: JobId, command: AdminCommand) -> ApiResult {
    match app.admin(command).await? {
        AdminResponse::State { id, state } => ok(&JobState { id: id.to_string(), state, cancel_requested: None }),
        AdminResponse::Done
        | AdminResponse::QueuePut { .. }
        | AdminResponse::CancelRequested
        | AdminResponse::Workflow { .. } => {
            let detail = format!("internal error: the store returned no state for job {id}");
            Err(ApiError::new(ErrorCode::Internal, detail))
        }
    }
}
