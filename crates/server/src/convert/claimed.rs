//! A claimed job, as the worker receives it.

use longshore_api::enums::State;
use longshore_core::submit::Payload;
use longshore_store::ClaimedJob;
use serde_json::value::RawValue;

use super::job::tags;
use super::raw::to_base64;
use crate::wire::json_writer::JsonWriter;

/// Bytes of a written job without its payload, about.
pub(crate) const JOB_BYTES: usize = 640;

/// Writes a claimed job as the wire type `ClaimedJob` describes it.
pub(crate) fn write_claimed(json: &mut JsonWriter, job: &ClaimedJob) {
    let ClaimedJob { claimed, payload } = job;
    json.object(|json| {
        json.field("id").uuid(claimed.id.as_bytes());
        json.field("seq").value(&claimed.seq.0);
        json.field("queue").word(claimed.queue.as_str());
        json.field("type").text(claimed.job_type.as_str());
        json.field("state").word(State::Running.as_str());
        json.field("priority").word(claimed.priority.as_str());
        json.field("attempt").value(&claimed.attempt);
        if let Some(id) = &claimed.attempt_id {
            json.field("attempt_id").uuid(id.as_bytes());
        }
        if let Some(id) = &claimed.previous_attempt_id {
            json.field("previous_attempt_id").uuid(id.as_bytes());
        }
        let tags = tags(&claimed.tags);
        if !tags.is_empty() {
            json.field("tags").value(&tags);
        }
        if let Some(id) = &claimed.correlation_id {
            json.field("correlation_id").text(id);
        }
        if let Some(parent) = &claimed.traceparent {
            json.field("traceparent").word(&parent.to_string());
        }
        if let Some(key) = &claimed.idempotency_key {
            json.field("idempotency_key").text(key);
        }
        json.field("created_at").time(claimed.created_at);
        json.field("deadline_at").time_or_null(claimed.deadline_at);
        if let Some(checkpoint) = &claimed.checkpoint {
            write_user_json(json.field("checkpoint"), checkpoint);
        }
        if let Some(workflow) = &claimed.workflow {
            json.field("workflow").uuid(workflow.as_bytes());
        }
        match payload {
            Payload::Json(bytes) => write_user_json(json.field("payload"), bytes),
            Payload::Binary(bytes) => json.field("payload_base64").word(&to_base64(bytes)),
        }
        json.field("lease").object(|json| {
            json.field("token").token(&claimed.token);
            json.field("version").value(&claimed.version.0);
            json.field("expires_at").time_or_null(claimed.expires_at);
            if let Some(duration) = &claimed.lease_duration {
                json.field("duration").value(duration);
            }
        });
        json.field("last_attempt").boolean(claimed.last_attempt);
    });
}

/// Writes stored JSON. Invalid bytes, which other programs may have written, become `null`.
fn write_user_json(json: &mut JsonWriter, stored: &[u8]) {
    match serde_json::from_slice::<&RawValue>(stored) {
        Ok(value) => json.raw(value.get().as_bytes()),
        Err(_) => json.null(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use longshore_api::work as wire;
    use longshore_core::id::{AttemptId, JobId, JobType, LeaseToken, LeaseVersion, QueueName, Seq, WorkflowId};
    use longshore_core::priority::Priority;
    use longshore_core::tags::Tags;
    use longshore_core::trace_context::TraceParent;
    use longshore_core::{Duration, Timestamp};
    use longshore_engine::Claimed;

    use super::*;
    use crate::convert::{raw, text, time, times, wire_duration};

    /// The same job by serde.
    fn by_serde(job: &ClaimedJob) -> String {
        let ClaimedJob { claimed, payload } = job;
        let (payload, payload_base64) = raw::payload(payload);
        let job = wire::ClaimedJob {
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
            traceparent: claimed.traceparent.as_ref().map(ToString::to_string),
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
        };
        serde_json::to_string(&job).unwrap()
    }

    fn full_job() -> ClaimedJob {
        let tags = BTreeMap::from([("k\"".into(), Some("v".into())), ("w".into(), None)]);
        let claimed = Claimed {
            id: JobId::from_bytes([7; 16]),
            seq: Seq(u64::MAX),
            queue: QueueName::new("a.b:c-d_e").unwrap(),
            job_type: JobType::new("Größe \"x\" \\").unwrap(),
            priority: Priority::Low,
            attempt: 3,
            attempt_id: Some(AttemptId::from_bytes([1; 16])),
            previous_attempt_id: Some(AttemptId::from_bytes([2; 16])),
            tags: Tags::Map(tags),
            correlation_id: Some("c\n".into()),
            traceparent: Some(Box::new(TraceParent { trace_id: [4; 16], span_id: [5; 8], flags: 1 })),
            idempotency_key: Some("k".into()),
            created_at: Timestamp::from_millis(1_794_766_107_123),
            checkpoint: Some(Bytes::from_static(b" [1] ")),
            workflow: Some(WorkflowId::from_bytes([3; 16])),
            token: LeaseToken::from_bytes([0xaf; 16]),
            version: LeaseVersion(12),
            expires_at: Some(Timestamp::from_millis(5)),
            deadline_at: Some(Timestamp::from_millis(i64::MAX)),
            lease_duration: Some(Duration::from_millis(90_500)),
            last_attempt: true,
        };
        ClaimedJob { claimed, payload: Payload::Json(Bytes::from_static(b"{\"a\":[1,\"x\"]}")) }
    }

    #[test]
    fn a_claimed_job_is_written_as_serde_writes_it() {
        let full = full_job();
        let mut bare = full_job();
        bare.claimed = Claimed {
            attempt_id: None,
            previous_attempt_id: None,
            tags: Tags::None,
            correlation_id: None,
            traceparent: None,
            idempotency_key: None,
            checkpoint: None,
            workflow: None,
            expires_at: None,
            deadline_at: None,
            lease_duration: None,
            last_attempt: false,
            ..bare.claimed
        };
        let with_payload = |payload: Payload| ClaimedJob { payload, ..full_job() };
        let invalid: [&'static [u8]; 4] = [b"", b"{", b"1 2", b"\"\xff\""];
        let json = |bytes: &'static [u8]| with_payload(Payload::Json(Bytes::from_static(bytes)));
        let binary = with_payload(Payload::Binary(Bytes::from_static(&[0, 255, 3])));
        for job in [full, bare, binary].into_iter().chain(invalid.into_iter().map(json)) {
            let mut json = JsonWriter::default();
            write_claimed(&mut json, &job);
            assert_eq!(String::from_utf8(json.finish().unwrap()).unwrap(), by_serde(&job));
        }
    }
}
