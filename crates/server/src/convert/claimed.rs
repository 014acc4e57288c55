//! A claimed job, as the worker receives it.

use longshore_api::enums::State;
use longshore_api::work as wire;
use longshore_store::ClaimedJob;

use super::job::tags;
use super::{raw, text, time, times, wire_duration};

pub(crate) fn claimed(job: &ClaimedJob) -> wire::ClaimedJob {
    let ClaimedJob { claimed, payload } = job;
    let (payload, payload_base64) = raw::payload(payload);
    wire::ClaimedJob {
        id: claimed.id.to_string(),
        seq: claimed.seq.0,
        queue: claimed.queue.to_string(),
        job_type: claimed.job_type.to_string(),
        state: State::Running,
        priority: claimed.priority,
        attempt: claimed.attempt,
        attempt_id: claimed.attempt_id.map(|id| id.to_string()),
        previous_attempt_id: claimed.previous_attempt_id.map(|id| id.to_string()),
        tags: tags(&claimed.tags),
        correlation_id: text(claimed.correlation_id.as_ref()),
        idempotency_key: text(claimed.idempotency_key.as_ref()),
        created_at: time(claimed.created_at),
        deadline_at: times(claimed.deadline_at),
        checkpoint: claimed.checkpoint.as_ref().map(raw::to_raw_json),
        workflow: claimed.workflow.map(|id| id.to_string()),
        payload,
        payload_base64,
        lease: wire::Lease {
            token: claimed.token.to_string(),
            version: claimed.version.0,
            expires_at: times(claimed.expires_at),
            duration: claimed.lease_duration.map(|length| wire_duration(Some(length))),
        },
        last_attempt: claimed.last_attempt,
    }
}
