//! A job with the field names of one of the five specifications, and no other fields.

use longshore_api::enums::{Priority, View};
use longshore_api::tags::TagMap;
use longshore_api::{Duration, Time};
use longshore_core::Timestamp;
use longshore_core::job::Job;
use longshore_core::submit::Payload;
use longshore_core::view::{self, WeaveId};
use serde::Serialize;
use serde_json::value::RawValue;

use super::job::tags;
use super::{raw, text, time, times, wire_duration};

/// Serialized as its content.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Viewed {
    Gopherqueue(GopherqueueView),
    Taskharbor(TaskharborView),
    Ocypod(OcypodView),
    Weave(WeaveView),
    Document(DocumentView),
}

#[derive(Serialize)]
pub(crate) struct GopherqueueView {
    id: String,
    #[serde(rename = "type")]
    job_type: String,
    state: &'static str,
    priority: Priority,
    attempt: u32,
    created_at: Time,
    updated_at: Time,
    scheduled_at: Option<Time>,
    started_at: Option<Time>,
    completed_at: Option<Time>,
    tags: TagMap,
    correlation_id: Option<String>,
    callback_url: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct TaskharborView {
    id: String,
    #[serde(rename = "type")]
    job_type: String,
    queue: String,
    state: &'static str,
    run_at: Option<Time>,
    attempts: u32,
    max_attempts: u32,
    timeout: Duration,
    idempotency_key: Option<String>,
    lease_expires_at: Option<Time>,
    last_error: Option<String>,
    failed_at: Option<Time>,
    created_at: Time,
}

#[derive(Serialize)]
pub(crate) struct OcypodView {
    id: u64,
    queue: String,
    status: &'static str,
    tags: Option<Vec<String>>,
    created_at: Time,
    started_at: Option<Time>,
    ended_at: Option<Time>,
    last_heartbeat: Option<Time>,
    input: Option<Box<RawValue>>,
    output: Option<Box<RawValue>>,
    timeout: Duration,
    heartbeat_timeout: Duration,
    expires_after: Duration,
    retries: u32,
    retries_attempted: u32,
    retry_delays: Option<Vec<Duration>>,
    ended: bool,
}

#[derive(Serialize)]
pub(crate) struct WeaveView {
    id: String,
    queue: String,
    state: &'static str,
    retries: u32,
    max_retries: u32,
    retry_at: Option<Time>,
    lease_version: u64,
    lease_expires_at: Option<Time>,
    last_error: Option<String>,
    created_at: Time,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DocumentView {
    job_id: String,
    state: &'static str,
    created_at: Time,
    started_at: Option<Time>,
    completed_at: Option<Time>,
    retry_count: u32,
    max_retries: u32,
    last_error: Option<String>,
    error_type: Option<&'static str>,
}

/// Only the view `ocypod` needs `payload`.
pub(crate) fn viewed(job: &Job, view: View, now: Timestamp, payload: Option<&Payload>) -> Viewed {
    match view {
        View::Gopherqueue => Viewed::Gopherqueue(gopherqueue(job)),
        View::Taskharbor => Viewed::Taskharbor(taskharbor(job, now)),
        View::Ocypod => Viewed::Ocypod(ocypod(job, payload)),
        View::Weave => Viewed::Weave(weave(job)),
        View::Document => Viewed::Document(document(job)),
    }
}

fn gopherqueue(job: &Job) -> GopherqueueView {
    let view = view::gopherqueue(job);
    GopherqueueView {
        id: view.id.to_string(),
        job_type: view.job_type.to_string(),
        state: view.state,
        priority: view.priority,
        attempt: view.attempt,
        created_at: time(view.created_at),
        updated_at: time(view.updated_at),
        scheduled_at: times(view.scheduled_at),
        started_at: times(view.started_at),
        completed_at: times(view.completed_at),
        tags: tags(&view.tags),
        correlation_id: text(view.correlation_id.as_ref()),
        callback_url: text(view.callback_url.as_ref()),
    }
}

fn taskharbor(job: &Job, now: Timestamp) -> TaskharborView {
    let view = view::taskharbor(job, now);
    TaskharborView {
        id: view.id.to_string(),
        job_type: view.job_type.to_string(),
        queue: view.queue.to_string(),
        state: view.state,
        run_at: times(view.run_at),
        attempts: view.attempts,
        max_attempts: view.max_attempts,
        timeout: wire_duration(view.timeout),
        idempotency_key: text(view.idempotency_key.as_ref()),
        lease_expires_at: times(view.lease_expires_at),
        last_error: text(view.last_error.as_ref()),
        failed_at: times(view.failed_at),
        created_at: time(view.created_at),
    }
}

fn ocypod(job: &Job, payload: Option<&Payload>) -> OcypodView {
    let input = payload.and_then(|payload| match payload {
        Payload::Json(bytes) => Some(bytes.clone()),
        // The input is JSON; a binary payload is left out.
        Payload::Binary(_) => None,
    });
    let view = view::ocypod(job, input);
    let delays = |delays: Vec<Duration>| delays.into_iter().map(|delay| wire_duration(Some(delay)));
    OcypodView {
        id: view.id.0,
        queue: view.queue.to_string(),
        status: view.status,
        tags: view.tags.map(|tags| tags.iter().map(ToString::to_string).collect()),
        created_at: time(view.created_at),
        started_at: times(view.started_at),
        ended_at: times(view.ended_at),
        last_heartbeat: times(view.last_heartbeat),
        input: view.input.as_ref().map(raw::to_raw_json),
        output: view.output.as_ref().map(raw::to_raw_json),
        timeout: wire_duration(view.timeout),
        heartbeat_timeout: wire_duration(view.heartbeat_timeout),
        expires_after: wire_duration(view.expires_after),
        retries: view.retries,
        retries_attempted: view.retries_attempted,
        retry_delays: view.retry_delays.map(|all| delays(all).collect()),
        ended: view.ended,
    }
}

fn weave(job: &Job) -> WeaveView {
    let view = view::weave(job);
    WeaveView {
        id: match view.id {
            WeaveId::External(id) => id.to_string(),
            WeaveId::Own(id) => id.to_string(),
        },
        queue: view.queue.to_string(),
        state: view.state,
        retries: view.retries,
        max_retries: view.max_retries,
        retry_at: times(view.retry_at),
        lease_version: view.lease_version.0,
        lease_expires_at: times(view.lease_expires_at),
        last_error: text(view.last_error.as_ref()),
        created_at: time(view.created_at),
    }
}

fn document(job: &Job) -> DocumentView {
    let view = view::document(job);
    DocumentView {
        job_id: view.job_id.to_string(),
        state: view.state,
        created_at: time(view.created_at),
        started_at: times(view.started_at),
        completed_at: times(view.completed_at),
        retry_count: view.retry_count,
        max_retries: view.max_retries,
        last_error: text(view.last_error.as_ref()),
        error_type: view.error_type,
    }
}
