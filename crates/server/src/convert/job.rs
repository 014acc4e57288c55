//! The record of a job, its attempts and its history.

use std::sync::Arc;

use longshore_api::job as wire;
use longshore_api::schedule::JobSchedule;
use longshore_api::tags::TagMap;
use longshore_core::actions::JobAction;
use longshore_core::attempt::Attempt;
use longshore_core::failure::Failure;
use longshore_core::history::Transition;
use longshore_core::id::JobId;
use longshore_core::job::Job;
use longshore_core::submit::Payload;
use longshore_core::tags::Tags;

use super::{raw, settings, text, time, times, wire_duration};

pub(crate) fn record(job: &Job, actions: Vec<JobAction>) -> wire::Job {
    let lease = job.state.lease();
    let id = |id: Option<JobId>| id.map(|id| id.to_string());
    let counters = job.counters;
    wire::Job {
        id: job.id.to_string(),
        seq: job.seq.0,
        queue: job.queue.to_string(),
        job_type: job.job_type.to_string(),
        state: job.kind(),
        priority: job.priority,
        effective_priority: job.effective_priority(),
        attempt: counters.starts,
        counters: wire::Counters {
            starts: counters.starts,
            failures: counters.failures,
            retries_scheduled: counters.retries_scheduled,
            requeues: counters.requeues,
            reclaims: counters.reclaims,
        },
        policy: settings::of_job(&job.policy),
        tags: tags(&job.tags),
        correlation_id: text(job.correlation_id.as_ref()),
        callback_url: text(job.callback_url.as_ref()),
        traceparent: job.traceparent.as_ref().map(ToString::to_string),
        idempotency_key: text(job.idempotency.as_ref().map(|key| &key.key)),
        external_id: text(job.external_id.as_ref()),
        created_at: time(job.created_at),
        updated_at: time(job.updated_at),
        run_at: times(job.state.run_at()),
        scheduled_at: times(job.scheduled_at),
        started_at: times(job.started_at),
        first_started_at: times(job.first_started_at),
        last_heartbeat_at: times(job.last_heartbeat_at),
        attempt_ended_at: times(job.attempt_ended_at),
        completed_at: times(job.state.completed_at()),
        lease: lease.map(|lease| wire::LeaseView {
            version: job.lease_version.0,
            expires_at: times(lease.expires_at),
            deadline_at: times(lease.deadline_at),
            worker: lease.worker.as_ref().map(ToString::to_string),
        }),
        progress: job.progress.as_ref().map(raw::to_raw_json),
        checkpoint: job.checkpoint.as_ref().map(raw::to_raw_json),
        result: job.result.as_ref().map(raw::to_raw_json),
        error: job.error.as_ref().map(error),
        after: job.dependencies.after.iter().map(|after| after.id.to_string()).collect(),
        after_any: job.dependencies.after_any.iter().map(ToString::to_string).collect(),
        waiting_on: job.dependencies.waiting_on(),
        workflow: job.membership.as_ref().map(|membership| membership.workflow.to_string()),
        parent: id(job.parent),
        requeued_from: id(job.requeued_from),
        requeued_as: id(job.requeued_as),
        cancel_requested: lease.is_some_and(|lease| lease.cancel_requested.is_some()),
        schedule: job
            .schedule
            .as_deref()
            .map(|schedule| JobSchedule { name: schedule.name.to_string(), due_at: times(schedule.due_at) }),
        actions,
        payload: None,
        payload_base64: None,
    }
}

pub(crate) fn with_payload(job: wire::Job, payload: Option<&Payload>) -> wire::Job {
    let (json, base64) = payload.map(raw::payload).unwrap_or_default();
    wire::Job { payload: json, payload_base64: base64, ..job }
}

pub(crate) fn tags(tags: &Tags) -> TagMap {
    tags.pairs().map(|(key, value)| (key.to_owned(), value.map(str::to_owned))).collect()
}

pub(crate) fn error(error: &Arc<Failure>) -> wire::ErrorView {
    wire::ErrorView {
        category: error.category,
        code: text(error.code.as_ref()),
        message: error.message.to_string(),
        cause: text(error.cause.as_ref()),
        at: time(error.at),
    }
}

pub(crate) fn attempt(attempt: &Attempt) -> wire::Attempt {
    let end = attempt.end.as_ref();
    wire::Attempt {
        id: attempt.id.to_string(),
        previous_id: attempt.previous_id.map(|id| id.to_string()),
        number: attempt.number,
        worker: attempt.worker.as_ref().map(ToString::to_string),
        lease_version: attempt.lease_version.0,
        started_at: time(attempt.started_at),
        ended_at: end.map(|end| time(end.at)),
        outcome: end.map(|end| end.outcome),
        error: end.and_then(|end| end.error.as_ref()).map(error),
        next_delay: end.and_then(|end| end.next_delay).map(|delay| wire_duration(Some(delay))),
    }
}

pub(crate) fn transition(transition: &Transition) -> wire::Transition {
    wire::Transition { from: transition.from, to: transition.to, at: time(transition.at), cause: transition.cause }
}
