//! Conversion of a record of `longshore-core` to a snapshot.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use longshore_core::attempt::Attempt;
use longshore_core::history::Transition;
use longshore_core::id::JobId;
use longshore_core::job::Job;
use longshore_core::tags::Tags;
use longshore_core::view::{self, WeaveId};
use longshore_core::{Duration, Timestamp};

use crate::target::*;

type Handles = HashMap<JobId, Handle>;

pub(super) fn job(job: &Job, handles: &Handles) -> JobSnapshot {
    let lease = job.state.lease();
    let handle = |id: Option<JobId>| id.and_then(|id| handles.get(&id).copied());
    JobSnapshot {
        queue: job.queue.to_string(),
        job_type: job.job_type.to_string(),
        state: job.kind().as_str().to_owned(),
        priority: job.priority.level(),
        effective_priority: job.effective_priority().level(),
        starts: job.counters.starts,
        failures: job.counters.failures,
        retries_scheduled: job.counters.retries_scheduled,
        requeues: job.counters.requeues,
        reclaims: job.counters.reclaims,
        lease_version: job.lease_version.0,
        lease_expires_at: millis(lease.and_then(|lease| lease.expires_at)),
        deadline_at: millis(lease.and_then(|lease| lease.deadline_at)),
        worker: lease.and_then(|lease| lease.worker.as_ref()).map(ToString::to_string),
        cancel_requested: lease.is_some_and(|lease| lease.cancel_requested.is_some()),
        created_at: job.created_at.as_millis(),
        updated_at: job.updated_at.as_millis(),
        run_at: millis(job.state.run_at()),
        scheduled_at: millis(job.scheduled_at),
        started_at: millis(job.started_at),
        first_started_at: millis(job.first_started_at),
        last_heartbeat_at: millis(job.last_heartbeat_at),
        attempt_ended_at: millis(job.attempt_ended_at),
        completed_at: millis(job.state.completed_at()),
        progress: text(job.progress.as_ref()),
        checkpoint: text(job.checkpoint.as_ref()),
        result: text(job.result.as_ref()),
        error: job.error.as_ref().map(|error| ErrorSnapshot {
            category: error.category.as_str().to_owned(),
            code: error.code.as_deref().map(str::to_owned),
            message: error.message.to_string(),
        }),
        waiting_on: job.dependencies.waiting_on(),
        parent: handle(job.parent),
        requeued_from: handle(job.requeued_from),
        requeued_as: handle(job.requeued_as),
        tags: job.tags.pairs().map(|(key, value)| (key.to_owned(), value.map(str::to_owned))).collect(),
        correlation_id: job.correlation_id.as_deref().map(str::to_owned),
        callback_url: job.callback_url.as_deref().map(str::to_owned),
        traceparent: job.traceparent.as_deref().map(ToString::to_string),
        idempotency_key: job.idempotency.as_ref().map(|key| key.key.to_string()),
        external_id: job.external_id.as_deref().map(str::to_owned),
        retry_limit: job.policy.retry.limit,
        attempts: job.attempts.iter().map(attempt).collect(),
        history: job.history.transitions().iter().map(step).collect(),
    }
}

fn attempt(attempt: &Attempt) -> AttemptSnapshot {
    let end = attempt.end.as_ref();
    AttemptSnapshot {
        number: attempt.number,
        lease_version: attempt.lease_version.0,
        worker: attempt.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        started_at: attempt.started_at.as_millis(),
        ended_at: end.map(|end| end.at.as_millis()),
        outcome: end.map(|end| end.outcome.as_str().to_owned()),
        category: end.and_then(|end| end.error.as_ref()).map(|error| error.category.as_str().to_owned()),
        next_delay: end.and_then(|end| end.next_delay).map(|delay| delay.as_millis().try_into().unwrap()),
    }
}

fn step(step: &Transition) -> HistorySnapshot {
    HistorySnapshot {
        from: step.from.map(|state| state.as_str().to_owned()),
        to: step.to.as_str().to_owned(),
        at: step.at.as_millis(),
        cause: step.cause.as_str().to_owned(),
    }
}

fn millis(at: Option<Timestamp>) -> Option<Millis> {
    at.map(Timestamp::as_millis)
}

fn text(bytes: Option<&Bytes>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// The fields of a view, each as text.
struct Fields(BTreeMap<String, String>);

impl Fields {
    fn put(&mut self, field: &str, value: impl ToString) -> &mut Self {
        self.0.insert(field.to_owned(), value.to_string());
        self
    }

    fn maybe(&mut self, field: &str, value: Option<impl ToString>) -> &mut Self {
        self.put(field, value.map_or("null".to_owned(), |value| value.to_string()))
    }

    fn at(&mut self, field: &str, at: Option<Timestamp>) -> &mut Self {
        self.maybe(field, at.map(Timestamp::as_millis))
    }

    fn length(&mut self, field: &str, length: Option<Duration>) -> &mut Self {
        self.put(field, length.unwrap_or_default())
    }
}

pub(super) fn view(job: &Job, view: &str, now: Timestamp, handles: &Handles) -> BTreeMap<String, String> {
    let mut fields = Fields(BTreeMap::new());
    let id = |id: JobId| handles.get(&id).map_or("?".to_owned(), ToString::to_string);
    match view {
        "gopherqueue" => {
            let view = view::gopherqueue(job);
            fields.put("id", id(view.id)).put("type", view.job_type).put("state", view.state);
            fields.put("priority", view.priority).put("attempt", view.attempt);
            fields.at("created_at", Some(view.created_at)).at("updated_at", Some(view.updated_at));
            fields.at("scheduled_at", view.scheduled_at).at("started_at", view.started_at);
            fields.at("completed_at", view.completed_at).put("tags", tag_text(&view.tags));
            fields.maybe("correlation_id", view.correlation_id).maybe("callback_url", view.callback_url);
        }
        "taskharbor" => {
            let view = view::taskharbor(job, now);
            fields.put("id", id(view.id)).put("type", view.job_type).put("queue", view.queue).put("state", view.state);
            fields.at("run_at", view.run_at).put("attempts", view.attempts).put("max_attempts", view.max_attempts);
            fields.length("timeout", view.timeout).maybe("idempotency_key", view.idempotency_key);
            fields.at("lease_expires_at", view.lease_expires_at).maybe("last_error", view.last_error);
            fields.at("failed_at", view.failed_at).at("created_at", Some(view.created_at));
        }
        "ocypod" => {
            let view = view::ocypod(job, None);
            let list = |parts: Vec<String>| parts.join(",");
            fields.put("id", id(job.id)).put("queue", view.queue).put("status", view.status);
            fields.maybe("tags", view.tags.map(|tags| list(tags.iter().map(ToString::to_string).collect())));
            fields.at("created_at", Some(view.created_at)).at("started_at", view.started_at);
            fields.at("ended_at", view.ended_at).at("last_heartbeat", view.last_heartbeat);
            fields.maybe("input", text(view.input.as_ref())).maybe("output", text(view.output.as_ref()));
            fields.length("timeout", view.timeout).length("heartbeat_timeout", view.heartbeat_timeout);
            fields.length("expires_after", view.expires_after).put("retries", view.retries);
            fields.put("retries_attempted", view.retries_attempted);
            fields.maybe(
                "retry_delays",
                view.retry_delays.map(|all| list(all.iter().map(ToString::to_string).collect())),
            );
            fields.put("ended", view.ended);
        }
        "weave" => {
            let view = view::weave(job);
            let name = match view.id {
                WeaveId::External(external_id) => external_id.to_string(),
                WeaveId::Own(own) => id(own),
            };
            fields.put("id", name).put("queue", view.queue).put("state", view.state).put("retries", view.retries);
            fields.put("max_retries", view.max_retries).at("retry_at", view.retry_at);
            fields.put("lease_version", view.lease_version.0).at("lease_expires_at", view.lease_expires_at);
            fields.maybe("last_error", view.last_error).at("created_at", Some(view.created_at));
        }
        "document" => {
            let view = view::document(job);
            fields.put("jobId", id(view.job_id)).put("state", view.state).at("createdAt", Some(view.created_at));
            fields.at("startedAt", view.started_at).at("completedAt", view.completed_at);
            fields.put("retryCount", view.retry_count).put("maxRetries", view.max_retries);
            fields.maybe("lastError", view.last_error).maybe("errorType", view.error_type);
        }
        other => panic!("there is no view {other:?}"),
    }
    fields.0
}

fn tag_text(tags: &Tags) -> String {
    let pair = |(key, value): (&str, Option<&str>)| match value {
        Some(value) => format!("{key}={value}"),
        None => key.to_owned(),
    };
    let pairs: Vec<String> = tags.pairs().map(pair).collect();
    if pairs.is_empty() { "null".to_owned() } else { pairs.join(",") }
}
