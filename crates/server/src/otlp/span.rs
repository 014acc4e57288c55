//! The spans of a submission and of an attempt, and their JSON.

use longshore_core::attempt::{Attempt, AttemptOutcome};
use longshore_core::id::{JobId, JobType, QueueName};
use longshore_core::job::Job;
use longshore_core::time::Timestamp;
use longshore_core::trace_context::TraceParent;
use serde_json::{Value, json};

use super::config::{OtlpConfig, Sampler};

/// OTLP's numbers of span kinds.
const PRODUCER: u8 = 4;
const CONSUMER: u8 = 5;
/// OTLP's number of the status of a failed span.
const ERROR: u8 = 2;

/// A finished span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    parent: Option<[u8; 8]>,
    /// The submitting span of a retry.
    link: Option<TraceParent>,
    kind: u8,
    name: String,
    start: Timestamp,
    end: Timestamp,
    texts: Vec<(&'static str, String)>,
    attempt: Option<u32>,
    has_failed: bool,
}

/// The last eight bytes of an id: random.
fn span_id(id: &[u8; 16]) -> [u8; 8] {
    id.last_chunk().copied().unwrap_or_default()
}

/// Returns the span that has submitted a job: the given one, or that of the server.
fn submitting_span(id: JobId, given: Option<&TraceParent>) -> TraceParent {
    let own = || TraceParent { trace_id: *id.as_bytes(), span_id: span_id(id.as_bytes()), flags: 1 };
    given.copied().unwrap_or_else(own)
}

/// What a submission was about.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubmittedJob<'a> {
    pub(super) id: JobId,
    pub(super) queue: &'a QueueName,
    pub(super) job_type: &'a JobType,
    pub(super) parent: Option<&'a TraceParent>,
}

/// Returns the span of a submission, if its trace is sampled.
pub(super) fn of_submission(
    job: SubmittedJob<'_>,
    sampler: &Sampler,
    (start, end): (Timestamp, Timestamp),
) -> Option<Span> {
    let trace_id = job.parent.map_or(*job.id.as_bytes(), |parent| parent.trace_id);
    sampler.samples(&trace_id, job.parent).then(|| Span {
        trace_id,
        span_id: span_id(job.id.as_bytes()),
        parent: job.parent.map(|parent| parent.span_id),
        link: None,
        kind: PRODUCER,
        name: format!("send {}", job.queue),
        start,
        end,
        texts: texts(job.id, job.queue, job.job_type),
        attempt: None,
        has_failed: false,
    })
}

/// Returns the span of an ended attempt, if its trace is sampled.
pub(super) fn of_attempt(job: &Job, attempt: &Attempt, sampler: &Sampler) -> Option<Span> {
    let end = attempt.end.as_ref()?;
    let given = job.traceparent.as_deref();
    let submitter = submitting_span(job.id, given);
    if !sampler.samples(&submitter.trace_id, given) {
        return None;
    }
    let is_first = attempt.previous_id.is_none();
    // A tick and a clone have no submitting span of their own.
    let has_submitter = given.is_some() || (job.schedule.is_none() && job.requeued_from.is_none());
    let attempt_id = *attempt.id.as_bytes();
    let (trace_id, parent) = match (is_first, has_submitter) {
        (true, true) => (submitter.trace_id, Some(submitter.span_id)),
        (true, false) => (submitter.trace_id, None),
        (false, _) => (attempt_id, None),
    };
    let mut texts = texts(job.id, &job.queue, &job.job_type);
    texts.push(("longshore.outcome", end.outcome.as_str().to_owned()));
    Some(Span {
        trace_id,
        span_id: span_id(&attempt_id),
        parent,
        link: (!is_first && has_submitter).then_some(submitter),
        kind: CONSUMER,
        name: format!("process {}", job.queue),
        start: attempt.started_at,
        end: end.at,
        texts,
        attempt: Some(attempt.number),
        has_failed: match end.outcome {
            AttemptOutcome::Failed | AttemptOutcome::TimedOut | AttemptOutcome::LeaseExpired => true,
            AttemptOutcome::Completed
            | AttemptOutcome::Snoozed
            | AttemptOutcome::Released
            | AttemptOutcome::Cancelled => false,
        },
    })
}

fn texts(id: JobId, queue: &QueueName, job_type: &JobType) -> Vec<(&'static str, String)> {
    vec![
        ("messaging.system", "longshore".to_owned()),
        ("messaging.destination.name", queue.to_string()),
        ("messaging.message.id", id.to_string()),
        ("longshore.job.type", job_type.to_string()),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn nanos(at: Timestamp) -> String {
    format!("{}", i128::from(at.as_millis()) * 1_000_000)
}

fn text_attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

impl Span {
    fn to_json(&self) -> Value {
        let mut attributes: Vec<Value> = self.texts.iter().map(|(key, value)| text_attribute(key, value)).collect();
        if let Some(attempt) = self.attempt {
            // 64-bit numbers of OTLP are texts in JSON.
            attributes.push(json!({ "key": "longshore.attempt", "value": { "intValue": attempt.to_string() } }));
        }
        let link = |link: &TraceParent| json!({ "traceId": hex(&link.trace_id), "spanId": hex(&link.span_id) });
        json!({
            "traceId": hex(&self.trace_id),
            "spanId": hex(&self.span_id),
            "parentSpanId": self.parent.map(|parent| hex(&parent)).unwrap_or_default(),
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": nanos(self.start),
            "endTimeUnixNano": nanos(self.end),
            "attributes": attributes,
            "links": self.link.iter().map(link).collect::<Vec<_>>(),
            "status": if self.has_failed { json!({ "code": ERROR }) } else { json!({}) },
            "flags": 1,
        })
    }
}

/// Returns the body of an export.
pub(super) fn export_body(config: &OtlpConfig, spans: &[Span]) -> Vec<u8> {
    let resource: Vec<Value> = config.resource.iter().map(|(key, value)| text_attribute(key, value)).collect();
    let body = json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{
            "scope": { "name": "longshore", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans.iter().map(Span::to_json).collect::<Vec<_>>(),
        }],
    }]});
    body.to_string().into_bytes()
}
