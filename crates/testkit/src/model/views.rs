//! The views of a job in the five specifications.

use std::collections::BTreeMap;

use super::job::{ModelJob, State};
use super::rules::{BackoffKind, show_duration};
use crate::target::{Handle, Millis};

type View = BTreeMap<String, String>;

fn absent() -> String {
    "null".to_owned()
}

fn time(instant: Option<Millis>) -> String {
    instant.map_or_else(absent, |instant| instant.to_string())
}

fn text(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(absent)
}

fn view(fields: &[(&str, String)]) -> View {
    fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

pub(crate) fn view_of(handle: Handle, job: &ModelJob, name: &str) -> Option<View> {
    match name {
        "gopherqueue" => Some(gopherqueue(handle, job)),
        "taskharbor" => Some(taskharbor(handle, job)),
        "ocypod" => Some(ocypod(handle, job)),
        "weave" => Some(weave(handle, job)),
        "document" => Some(document(handle, job)),
        _ => None,
    }
}

fn message(job: &ModelJob) -> String {
    text(job.error.as_ref().map(|error| &error.message))
}

fn lease_end(job: &ModelJob) -> String {
    time(job.lease.as_ref().and_then(|lease| lease.expires_at))
}

fn gopherqueue(handle: Handle, job: &ModelJob) -> View {
    let tags: Vec<String> = job
        .tags
        .iter()
        .map(|(key, value)| value.as_ref().map_or_else(|| key.clone(), |value| format!("{key}={value}")))
        .collect();
    view(&[
        ("id", handle.to_string()),
        ("type", job.job_type.clone()),
        ("state", job.state.as_str().to_uppercase()),
        ("priority", ["critical", "high", "normal", "low", "bulk"][usize::from(job.priority)].to_owned()),
        ("attempt", job.counters.starts.to_string()),
        ("created_at", job.created_at.to_string()),
        ("updated_at", job.updated_at.to_string()),
        ("scheduled_at", time(job.scheduled_at)),
        ("started_at", time(job.started_at)),
        ("completed_at", time(job.completed_at)),
        ("tags", if tags.is_empty() { absent() } else { tags.join(",") }),
        ("correlation_id", text(job.correlation_id.as_ref())),
        ("callback_url", text(job.callback_url.as_ref())),
    ])
}

fn taskharbor(handle: Handle, job: &ModelJob) -> View {
    let state = match job.state {
        State::Pending | State::Scheduled => "runnable",
        State::Delayed | State::Retrying => "scheduled",
        // A job without a holder can be reserved.
        State::Running if job.is_lapsed() => "runnable",
        State::Running => "reserved",
        State::Completed => "done",
        State::Failed | State::DeadLetter => "dlq",
        State::Cancelled => "cancelled",
    };
    view(&[
        ("id", handle.to_string()),
        ("type", job.job_type.clone()),
        ("queue", job.queue.clone()),
        ("state", state.to_owned()),
        ("run_at", time(job.shown_run_at())),
        ("attempts", job.counters.failures.to_string()),
        ("max_attempts", job.rules.limit_in_starts().to_string()),
        ("timeout", show_duration(job.rules.execution_timeout)),
        ("idempotency_key", text(job.idempotency_key.as_ref())),
        ("lease_expires_at", lease_end(job)),
        ("last_error", message(job)),
        ("failed_at", if state == "dlq" { time(job.completed_at) } else { absent() }),
        ("created_at", job.created_at.to_string()),
    ])
}

fn ocypod(handle: Handle, job: &ModelJob) -> View {
    let timed_out = job.error.as_ref().is_some_and(|error| error.category == "timeout");
    let status = match job.state {
        State::Pending | State::Scheduled | State::Delayed => "created",
        State::Running => "running",
        State::Completed => "completed",
        State::Retrying | State::Failed | State::DeadLetter if timed_out => "timed_out",
        State::Retrying | State::Failed | State::DeadLetter => "failed",
        State::Cancelled => "cancelled",
    };
    // A job that waits for its next run, or ended while waiting, shows nothing of the last run.
    let ended = job.state.is_terminal();
    let before_the_end = job.history.last().and_then(|end| end.from).filter(|_| ended).unwrap_or(job.state);
    let waits = matches!(before_the_end, State::Pending | State::Scheduled | State::Delayed);
    let of_run = |value: String| if waits { absent() } else { value };
    let tags: Vec<&str> = job.tags.keys().map(String::as_str).collect();
    let delays: Vec<String> = match job.rules.backoff {
        BackoffKind::List => job.rules.delays.iter().map(|delay| show_duration(*delay)).collect(),
        BackoffKind::Constant | BackoffKind::Linear | BackoffKind::Exponential => Vec::new(),
    };
    view(&[
        ("id", handle.to_string()),
        ("queue", job.queue.clone()),
        ("status", status.to_owned()),
        ("tags", if tags.is_empty() { absent() } else { tags.join(",") }),
        ("created_at", job.created_at.to_string()),
        ("started_at", of_run(time(job.started_at))),
        ("ended_at", if ended { time(job.completed_at) } else { of_run(time(job.attempt_ended_at)) }),
        ("last_heartbeat", of_run(time(job.last_heartbeat_at))),
        ("input", absent()),
        ("output", of_run(text(job.result.as_ref().or(job.progress.as_ref())))),
        ("timeout", show_duration(job.rules.execution_timeout)),
        ("heartbeat_timeout", show_duration(job.rules.lease)),
        ("expires_after", show_duration(job.rules.retention.completed)),
        ("retries", job.rules.limit_in_retries().to_string()),
        ("retries_attempted", job.counters.requeues.to_string()),
        ("retry_delays", if delays.is_empty() { absent() } else { delays.join(",") }),
        ("ended", ended.to_string()),
    ])
}

fn weave(handle: Handle, job: &ModelJob) -> View {
    let state = match job.state {
        State::Pending | State::Scheduled | State::Delayed | State::Retrying => "Ready",
        State::Running => "InFlight",
        State::Completed => "Succeeded",
        State::Failed | State::DeadLetter | State::Cancelled => "Failed",
    };
    view(&[
        ("id", job.external_id.clone().unwrap_or_else(|| handle.to_string())),
        ("queue", job.queue.clone()),
        ("state", state.to_owned()),
        ("retries", job.counters.retries_scheduled.to_string()),
        ("max_retries", job.rules.limit_in_retries().to_string()),
        ("retry_at", if state == "Ready" { time(job.shown_run_at()) } else { absent() }),
        ("lease_version", job.lease_version.to_string()),
        ("lease_expires_at", lease_end(job)),
        ("last_error", if job.state == State::Cancelled { "cancelled".to_owned() } else { message(job) }),
        ("created_at", job.created_at.to_string()),
    ])
}

fn document(handle: Handle, job: &ModelJob) -> View {
    let state = match job.state {
        State::Pending => "CREATED",
        State::Scheduled | State::Delayed => "QUEUED",
        State::Running => "RUNNING",
        State::Retrying => "RETRYING",
        State::Completed => "SUCCEEDED",
        State::Failed | State::DeadLetter | State::Cancelled => "FAILED",
    };
    let (last_error, error_type) = match (&job.error, job.state) {
        // Both are null on success, even if earlier runs stored them (L-39, L-40).
        (None, _) | (_, State::Completed) => (absent(), absent()),
        (Some(_), State::Cancelled) => ("cancelled".to_owned(), "TERMINAL".to_owned()),
        (Some(error), _) => {
            (error.message.clone(), if state == "FAILED" { "TERMINAL" } else { "RETRYABLE" }.to_owned())
        }
    };
    view(&[
        ("jobId", handle.to_string()),
        ("state", state.to_owned()),
        ("createdAt", job.created_at.to_string()),
        ("startedAt", time(job.started_at)),
        ("completedAt", time(job.completed_at)),
        ("retryCount", job.counters.retries_scheduled.to_string()),
        ("maxRetries", job.rules.limit_in_retries().to_string()),
        ("lastError", last_error),
        ("errorType", error_type),
    ])
}
