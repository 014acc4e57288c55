//! Views: a job with the fields and the state names of each specification. Views are not stored.

use std::sync::Arc;

use bytes::Bytes;

use crate::backoff::BackoffKind;
use crate::id::{JobId, JobType, LeaseVersion, QueueName, Seq};
use crate::job::Job;
use crate::ocypod::status::Status;
use crate::priority::Priority;
use crate::state::{State, StateKind};
use crate::tags::Tags;
use crate::time::{Duration, Timestamp};

/// GopherQueue, formal job model.
#[derive(Clone, Debug, PartialEq)]
pub struct GopherqueueView {
    pub id: JobId,
    pub job_type: JobType,
    pub state: &'static str,
    pub priority: Priority,
    pub attempt: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub scheduled_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub tags: Tags,
    pub correlation_id: Option<Arc<str>>,
    pub callback_url: Option<Arc<str>>,
}

pub fn gopherqueue(job: &Job) -> GopherqueueView {
    let state = match job.kind() {
        StateKind::Pending => "PENDING",
        StateKind::Scheduled => "SCHEDULED",
        StateKind::Delayed => "DELAYED",
        StateKind::Running => "RUNNING",
        StateKind::Retrying => "RETRYING",
        StateKind::Completed => "COMPLETED",
        StateKind::Failed => "FAILED",
        StateKind::DeadLetter => "DEAD_LETTER",
        StateKind::Cancelled => "CANCELLED",
    };
    GopherqueueView {
        id: job.id,
        job_type: job.job_type.clone(),
        state,
        priority: job.priority,
        attempt: job.counters.starts,
        created_at: job.created_at,
        updated_at: job.updated_at,
        scheduled_at: job.scheduled_at,
        started_at: job.started_at,
        completed_at: job.state.completed_at(),
        tags: job.tags.clone(),
        correlation_id: job.correlation_id.clone(),
        callback_url: job.callback_url.clone(),
    }
}

/// TaskHarbor, runtime semantics.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskharborView {
    pub id: JobId,
    pub job_type: JobType,
    pub queue: QueueName,
    pub state: &'static str,
    pub run_at: Option<Timestamp>,
    /// Failures so far.
    pub attempts: u32,
    pub max_attempts: u32,
    pub timeout: Option<Duration>,
    pub idempotency_key: Option<Arc<str>>,
    pub lease_expires_at: Option<Timestamp>,
    pub last_error: Option<Arc<str>>,
    pub failed_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// At `now`, a job with an expired lease is runnable, also before it is reclaimed.
pub fn taskharbor(job: &Job, now: Timestamp) -> TaskharborView {
    let state = match &job.state {
        State::Pending { .. } | State::Scheduled { .. } => "runnable",
        State::Delayed { .. } | State::Retrying { .. } => "scheduled",
        State::Running(lease) if lease.expired(now) => "runnable",
        State::Running(_) => "reserved",
        State::Completed { .. } => "done",
        State::Failed { .. } | State::DeadLetter { .. } => "dlq",
        State::Cancelled { .. } => "cancelled",
    };
    TaskharborView {
        id: job.id,
        job_type: job.job_type.clone(),
        queue: job.queue.clone(),
        state,
        run_at: job.state.run_at(),
        attempts: job.counters.failures,
        max_attempts: job.policy.retry.starts_max(),
        timeout: job.policy.execution_timeout,
        idempotency_key: job.idempotency.as_ref().map(|key| Arc::clone(&key.key)),
        lease_expires_at: job.state.lease().and_then(|lease| lease.expires_at),
        last_error: last_error(job),
        failed_at: job.state.completed_at().filter(|_| state == "dlq"),
        created_at: job.created_at,
    }
}

/// Ocypod, core concepts: its 17 fields.
#[derive(Clone, Debug, PartialEq)]
pub struct OcypodView {
    pub id: Seq,
    pub queue: QueueName,
    pub status: &'static str,
    pub tags: Option<Vec<Arc<str>>>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub last_heartbeat: Option<Timestamp>,
    pub input: Option<Bytes>,
    pub output: Option<Bytes>,
    pub timeout: Option<Duration>,
    pub heartbeat_timeout: Option<Duration>,
    pub expires_after: Option<Duration>,
    pub retries: u32,
    pub retries_attempted: u32,
    pub retry_delays: Option<Vec<Duration>>,
    pub ended: bool,
}

pub fn ocypod(job: &Job, input: Option<Bytes>) -> OcypodView {
    let status = Status::of(job);
    let backoff = &job.policy.retry.backoff;
    let delays = Some(backoff.delays.clone()).filter(|delays| backoff.kind == BackoffKind::List && !delays.is_empty());
    // A job that waits in its queue again shows no data of earlier attempts.
    let started = last_run_is_current(job);
    OcypodView {
        id: job.seq,
        queue: job.queue.clone(),
        // The name in the specification for a queued job.
        status: if status == Status::Queued { "created" } else { status.as_str() },
        tags: tag_list(&job.tags),
        created_at: job.created_at,
        started_at: job.started_at.filter(|_| started),
        ended_at: job.state.completed_at().or(job.attempt_ended_at.filter(|_| started)),
        last_heartbeat: job.last_heartbeat_at.filter(|_| started),
        input,
        output: job.result.clone().or_else(|| job.progress.clone()).filter(|_| started),
        timeout: job.policy.execution_timeout,
        heartbeat_timeout: job.policy.lease,
        expires_after: job.policy.retention.completed,
        retries: job.policy.retry.retries_max(),
        retries_attempted: job.counters.requeues,
        retry_delays: delays,
        ended: job.state.terminal(),
    }
}

/// Whether the job runs its last attempt, waits for the retry of it, or ended from there.
fn last_run_is_current(job: &Job) -> bool {
    let last_active =
        if job.state.terminal() { job.history.transitions().last().and_then(|end| end.from) } else { Some(job.kind()) };
    match last_active {
        None | Some(StateKind::Pending | StateKind::Scheduled | StateKind::Delayed) => false,
        Some(
            StateKind::Running
            | StateKind::Retrying
            | StateKind::Completed
            | StateKind::Failed
            | StateKind::DeadLetter
            | StateKind::Cancelled,
        ) => true,
    }
}

fn tag_list(tags: &Tags) -> Option<Vec<Arc<str>>> {
    match tags {
        Tags::None => None,
        Tags::List(list) => Some(list.clone()),
        Tags::Map(map) => Some(map.keys().cloned().collect()),
    }
}

/// weave-queue, queue semantics and invariants.
#[derive(Clone, Debug, PartialEq)]
pub struct WeaveView {
    /// The external id if there is one.
    pub id: WeaveId,
    pub queue: QueueName,
    pub state: &'static str,
    pub retries: u32,
    pub max_retries: u32,
    pub retry_at: Option<Timestamp>,
    pub lease_version: LeaseVersion,
    pub lease_expires_at: Option<Timestamp>,
    pub last_error: Option<Arc<str>>,
    pub created_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeaveId {
    External(Arc<str>),
    Own(JobId),
}

pub fn weave(job: &Job) -> WeaveView {
    let state = match job.kind() {
        StateKind::Pending | StateKind::Scheduled | StateKind::Delayed | StateKind::Retrying => "Ready",
        StateKind::Running => "InFlight",
        StateKind::Completed => "Succeeded",
        StateKind::Failed | StateKind::DeadLetter | StateKind::Cancelled => "Failed",
    };
    WeaveView {
        id: job.external_id.clone().map_or(WeaveId::Own(job.id), WeaveId::External),
        queue: job.queue.clone(),
        state,
        retries: job.counters.retries_scheduled,
        max_retries: job.policy.retry.retries_max(),
        retry_at: job.state.run_at(),
        lease_version: job.lease_version,
        lease_expires_at: job.state.lease().and_then(|lease| lease.expires_at),
        last_error: last_error_or_cancelled(job),
        created_at: job.created_at,
    }
}

/// The document job lifecycle.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentView {
    pub job_id: JobId,
    pub state: &'static str,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub retry_count: u32,
    pub max_retries: u32,
    pub last_error: Option<Arc<str>>,
    pub error_type: Option<&'static str>,
}

pub fn document(job: &Job) -> DocumentView {
    let state = match job.kind() {
        StateKind::Pending => "CREATED",
        StateKind::Scheduled | StateKind::Delayed => "QUEUED",
        StateKind::Running => "RUNNING",
        StateKind::Retrying => "RETRYING",
        StateKind::Completed => "SUCCEEDED",
        StateKind::Failed | StateKind::DeadLetter | StateKind::Cancelled => "FAILED",
    };
    let last_error = if job.kind() == StateKind::Completed { None } else { last_error_or_cancelled(job) };
    let outcome = if state == "FAILED" { "TERMINAL" } else { "RETRYABLE" };
    DocumentView {
        job_id: job.id,
        state,
        created_at: job.created_at,
        started_at: job.started_at,
        completed_at: job.state.completed_at(),
        retry_count: job.counters.retries_scheduled,
        max_retries: job.policy.retry.retries_max(),
        error_type: last_error.as_ref().map(|_| outcome),
        last_error,
    }
}

/// The message of a cancelled job is `cancelled`: these specifications have no such state.
fn last_error_or_cancelled(job: &Job) -> Option<Arc<str>> {
    if job.kind() == StateKind::Cancelled { Some(Arc::from("cancelled")) } else { last_error(job) }
}

fn last_error(job: &Job) -> Option<Arc<str>> {
    job.error.as_ref().map(|error| Arc::clone(&error.message))
}
