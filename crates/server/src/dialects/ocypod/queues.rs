//! `/queue`: list, read, create or change, delete; submit and claim jobs.

use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use longshore_core::Timestamp;
use longshore_core::claim::ClaimOptions;
use longshore_core::id::JobType;
use longshore_core::job::Job;
use longshore_core::ocypod::status::{OCYPOD_TYPE, Status};
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::state::{State, StateKind};
use longshore_core::submit::{NewJob, Payload};
use longshore_core::tags::Tags;
use longshore_engine::{
    AdminCommand, AdminResponse, ClaimRequest, DeleteQueue, QueueDeleteMode, Submission, SubmitRequest, count_of,
};
use longshore_store::JobFilter;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::duration::OcypodDuration;
use super::info::is_ocypod_queue;
use super::job::input;
use super::jobs::{for_each_job, is_ocypod_job};
use super::request::{OcypodRequest, payload_max};
use super::response::{OcypodError, OcypodResult, json, no_content, ok, with_location};
use super::settings::{SettingsBody, to_wire};
use crate::net::delivery;
use crate::state::AppState;

/// `GET /queue`: the sorted names.
pub(super) async fn list(call: OcypodRequest) -> OcypodResult {
    let reports = call.app.call_store(call.app.store.queues()).await?;
    let names: Vec<&str> =
        reports.iter().filter(|report| is_ocypod_queue(report)).map(|report| report.queue.name.as_str()).collect();
    ok(&names)
}

/// `GET /queue/{name}`
pub(super) async fn get(call: OcypodRequest) -> OcypodResult {
    ok(&to_wire(&call.existing_queue().await?.queue.policy))
}

/// `PUT /queue/{name}`: creates a queue or replaces its settings; a missing field gets its default.
pub(super) async fn put(call: OcypodRequest) -> OcypodResult {
    let (app, name) = (call.app.clone(), call.queue());
    let body = call.json(usize::try_from(payload_max()).unwrap_or(usize::MAX))?;
    let settings: SettingsBody = body.object()?;
    let name = name?;
    let existing = app.call_store(app.store.queue(name.clone())).await?;
    if let Some(report) = existing.as_ref().filter(|report| report.queue.profile != Profile::Ocypod) {
        let profile = report.queue.profile;
        return Err(OcypodError::bad(format!("Queue '{name}' is not an Ocypod queue: its profile is {profile}")));
    }
    let overrides = settings.overrides_of(existing.as_ref().map(|report| report.queue.as_ref()))?;
    let command = AdminCommand::PutQueue {
        queue: name.clone(),
        profile: Some(Profile::Ocypod),
        overrides: Some(Box::new(overrides)),
    };
    let created = put_queue(&app, command).await? == AdminResponse::QueuePut { created: true };
    let status = if created { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    with_location(status.into_response(), &format!("/queue/{name}"))
}

/// Slices of a deletion that a PUT waits for.
const DELETE_SLICES_MAX: usize = 1_000;
/// Jobs of one slice.
const DELETE_SLICE_JOBS: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

/// Finishes the deletion of a queue of the same name first. Ocypod deletes queues at once, so its
/// clients do not retry.
async fn put_queue(app: &AppState, command: AdminCommand) -> Result<AdminResponse, OcypodError> {
    for _ in 0..DELETE_SLICES_MAX {
        match app.call_store(app.store.admin(command.clone())).await? {
            Err(Refusal::Illegal(_)) => app.call_store(app.store.tick(DELETE_SLICE_JOBS)).await?,
            response => return Ok(response?),
        };
    }
    Err(OcypodError::conflict("the queue is still being deleted"))
}

/// `DELETE /queue/{name}`: cancels waiting jobs; running jobs may finish, ended jobs stay.
pub(super) async fn delete(call: OcypodRequest) -> OcypodResult {
    let (app, queue) = (&call.app, call.queue()?);
    let existing = app.call_store(app.store.queue(queue.clone())).await?;
    if existing.is_none_or(|report| report.queue.profile != Profile::Ocypod) {
        return Err(OcypodError::empty_body(StatusCode::NOT_FOUND));
    }
    let how = DeleteQueue::Force(QueueDeleteMode::LetRunningFinish);
    match app.call_store(app.store.admin(AdminCommand::DeleteQueue { queue, how })).await? {
        Ok(_) => no_content(),
        Err(Refusal::QueueNotFound) => Err(OcypodError::empty_body(StatusCode::NOT_FOUND)),
        Err(refusal) => Err(refusal.into()),
    }
}

/// `GET /queue/{name}/size`: the number of waiting jobs.
pub(super) async fn size(call: OcypodRequest) -> OcypodResult {
    let counts = call.existing_queue().await?.counts;
    let waiting = [StateKind::Pending, StateKind::Scheduled, StateKind::Delayed];
    ok(&waiting.into_iter().map(|state| count_of(&counts, state)).sum::<u64>())
}

#[derive(Default, Serialize)]
struct JobIds {
    queued: Vec<u64>,
    running: Vec<u64>,
    failed: Vec<u64>,
    completed: Vec<u64>,
    cancelled: Vec<u64>,
    timed_out: Vec<u64>,
}

/// `GET /queue/{name}/job_ids`: ids by status, also of a deleted queue that has ended jobs.
pub(super) async fn job_ids(call: OcypodRequest) -> OcypodResult {
    let filter = JobFilter { queue: Some(call.queue()?), ..JobFilter::default() };
    let mut jobs = Vec::new();
    for_each_job(&call.app, filter, |job| {
        if is_ocypod_job(job) {
            jobs.push((Status::of(job), sort_key(job), job.seq.0));
        }
    })
    .await?;
    let ids = |status: Status| jobs.iter().filter(move |(other, ..)| *other == status);
    let oldest_first = |status: Status| {
        let mut sorted: Vec<_> = ids(status).map(|(_, key, id)| (*key, *id)).collect();
        sorted.sort_unstable();
        sorted.into_iter().map(|(_, id)| id).collect()
    };
    let newest_first = |status: Status| {
        let mut sorted: Vec<_> = ids(status).map(|(_, key, id)| Reverse((*key, *id))).collect();
        sorted.sort_unstable();
        sorted.into_iter().map(|Reverse((_, id))| id).collect()
    };
    ok(&JobIds {
        queued: newest_first(Status::Queued),
        running: oldest_first(Status::Running),
        failed: oldest_first(Status::Failed),
        completed: newest_first(Status::Completed),
        cancelled: newest_first(Status::Cancelled),
        timed_out: oldest_first(Status::TimedOut),
    })
}

/// Orders jobs of one status: by queue position, or by the time of the last transition.
fn sort_key(job: &Job) -> (Timestamp, u64) {
    match &job.state {
        State::Scheduled { position } => (Timestamp::from_millis(0), *position),
        State::Pending { .. } | State::Delayed { .. } => (Timestamp::from_millis(0), job.seq.0),
        State::Running(lease) => (job.updated_at, lease.position),
        State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => (job.updated_at, 0),
    }
}

#[derive(Serialize)]
struct OcypodClaim {
    id: u64,
    input: Option<Box<RawValue>>,
}

/// `GET /queue/{name}/job`: claims the next job.
pub(super) async fn claim(call: OcypodRequest) -> OcypodResult {
    let name = call.existing_queue().await?.queue.name.clone();
    let terms = ClaimOptions { worker: None, lease: None, execution_timeout: None };
    let request = ClaimRequest { queues: vec![name], limit: 1, types: Vec::new(), terms };
    let grant = call.app.claim(request, Duration::ZERO).await?;
    let Some(job) = grant.jobs().first() else { return no_content() };
    let claim = OcypodClaim { id: job.claimed.seq.0, input: input(Some(&job.payload)) };
    let bytes = serde_json::to_vec(&claim).map_err(|_| OcypodError::empty_body(StatusCode::INTERNAL_SERVER_ERROR))?;
    Ok(delivery::response(bytes, grant))
}

/// Every field may be missing or `null`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct JobBody<'a> {
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    tags: Option<Vec<String>>,
    timeout: Option<OcypodDuration>,
    heartbeat_timeout: Option<OcypodDuration>,
    expires_after: Option<OcypodDuration>,
    retries: Option<u64>,
    retry_delays: Option<Vec<OcypodDuration>>,
}

/// `POST /queue/{name}/job`: submits a job.
pub(super) async fn submit(call: OcypodRequest) -> OcypodResult {
    let (app, queue) = (call.app.clone(), call.queue());
    // The size limit depends on the queue; a missing queue is reported after the body was read.
    let report = call.existing_queue().await;
    let bytes_max = report.as_ref().map_or(payload_max(), |report| report.queue.admission.payload_max);
    let body = call.json_around(bytes_max)?;
    let job: JobBody<'_> = body.object()?;
    let queue = queue?;
    report?;
    let mut request = SubmitRequest::new(vec![Submission { queue: queue.clone(), job: parse_job(job)? }]);
    request.require_profile = Some(Profile::Ocypod);
    match app.submit(request).await? {
        Ok(submitted) => {
            let id = submitted
                .first()
                .map(|job| job.seq)
                .ok_or_else(|| OcypodError::empty_body(StatusCode::INTERNAL_SERVER_ERROR))?;
            with_location(json(StatusCode::CREATED, &id.0)?, &format!("/job/{id}"))
        }
        Err(refusal) => Err(OcypodError::refused(refusal.first, &queue, None)),
    }
}

fn parse_job(job: JobBody<'_>) -> Result<NewJob, OcypodError> {
    let JobBody { input, tags, timeout, heartbeat_timeout, expires_after, retries, retry_delays } = job;
    let input = input.map_or(Bytes::from_static(b"null"), |input| Bytes::copy_from_slice(input.get().as_bytes()));
    let mut job = NewJob::new(JobType::new(OCYPOD_TYPE)?, Payload::Json(input));
    job.tags = tags.map_or(Tags::None, |tags| Tags::List(tags.into_iter().map(Arc::from).collect()));
    job.policy = SettingsBody { timeout, heartbeat_timeout, expires_after, retries, retry_delays }.job_overrides()?;
    Ok(job)
}
