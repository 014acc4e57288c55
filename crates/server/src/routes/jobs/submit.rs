//! `POST /v1/queues/{queue}/jobs`: submit a job, or an array of jobs.

use std::collections::HashMap;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use longshore_core::id::{QueueName, Seq};
use longshore_core::submit::Payload;
use longshore_core::trace_context::TraceParent;
use longshore_engine::{ParsedSubmission, SubmitRequest, Submitted};
use serde_json::value::RawValue;

use crate::access::CallerState as State;
use crate::routes::batch::{Batch, QueueField};
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::json::is_array;
use crate::wire::json_writer::JsonWriter;
use crate::wire::path::QueuePath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, json_bytes};

pub(crate) async fn submit(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    _: NoQuery,
    SubmitHeaders { key, traceparent }: SubmitHeaders,
    body: JsonBody,
) -> ApiResult {
    let text = body.text()?;
    if !is_array(text) {
        return submit_one(&app, &queue, text, key, traceparent).await;
    }
    let batch = match Batch::of_valid_jobs(text, &queue) {
        Some(batch) => batch,
        None => {
            let Ok(jobs) = serde_json::from_str::<Vec<&RawValue>>(text) else {
                // Not JSON.
                return submit_one(&app, &queue, text, key, None).await;
            };
            check_no_header_key(key.as_ref())?;
            batch_of(&jobs, &queue)?
        }
    };
    check_no_header_key(key.as_ref())?;
    submit_batch(&app, batch).await
}

fn check_no_header_key(key: Option<&String>) -> Result<(), ApiError> {
    let reason = "is for a single job: set idempotency_key in each job of an array";
    key.map_or(Ok(()), |_| Err(ApiError::validation(IDEMPOTENCY_KEY, reason)))
}

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

const TRACEPARENT: &str = "traceparent";

/// The headers of a single submission.
#[derive(Debug, Default)]
pub(crate) struct SubmitHeaders {
    key: Option<String>,
    /// A malformed or repeated `traceparent` is ignored, as the W3C says.
    traceparent: Option<TraceParent>,
}

impl<S: Send + Sync> FromRequestParts<S> for SubmitHeaders {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::of(&parts.headers)
    }
}

impl SubmitHeaders {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        Ok(Self { key: idempotency_key(headers)?, traceparent: traceparent(headers) })
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let key = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(key), None) => key,
        (Some(_), Some(_)) => return Err(ApiError::validation(IDEMPOTENCY_KEY, "must be given once")),
    };
    let text = std::str::from_utf8(key.as_bytes());
    let text = text.map_err(|_| ApiError::validation(IDEMPOTENCY_KEY, "must be UTF-8"))?;
    Ok(Some(text.to_owned()))
}

fn traceparent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => TraceParent::parse(value.to_str().ok()?.trim()),
        (None, _) | (Some(_), Some(_)) => None,
    }
}

async fn submit_one(
    app: &AppState,
    queue: &QueueName,
    text: &str,
    key: Option<String>,
    traceparent: Option<TraceParent>,
) -> ApiResult {
    let mut batch = Batch::with_header_key(key);
    batch.add(text, queue, QueueField::Refused);
    if let Some(error) = batch.take_invalid_item() {
        return Err(error.into());
    }
    if let Some(parent) = traceparent {
        batch.set_traceparent(parent);
    }
    let payloads = KeyedPayloads::of(&batch.members);
    let submitted = batch.submit(app, SubmitRequest::parsed, Batch::single_refusal).await?;
    let Some(job) = submitted.first() else { return Err(ApiError::bad_request("no job was submitted")) };
    let same_payload = compare_duplicates(app, &submitted, payloads).await.get(&0).copied();
    let mut json = JsonWriter::with_capacity(RESULT_BYTES);
    write_submitted(&mut json, job, same_payload);
    Ok(json_bytes(status(job.duplicate), json.finish()?))
}

/// Parses item by item: some are invalid.
fn batch_of(jobs: &[&RawValue], queue: &QueueName) -> Result<Batch, ApiError> {
    Batch::check_size(jobs.len())?;
    let mut batch = Batch::default();
    for job in jobs {
        batch.add(job.get(), queue, QueueField::Refused);
    }
    Ok(batch)
}

async fn submit_batch(app: &AppState, batch: Batch) -> ApiResult {
    let payloads = KeyedPayloads::of(&batch.members);
    let submitted = batch.submit(app, SubmitRequest::parsed, Batch::refusal).await?;
    let status = status(submitted.iter().all(|job| job.duplicate));
    let same_payload = compare_duplicates(app, &submitted, payloads).await;
    let mut json = JsonWriter::with_capacity(submitted.len() * RESULT_BYTES);
    json.object(|json| {
        json.field("jobs").array(submitted.iter().enumerate(), |json, (index, job)| {
            write_submitted(json, job, same_payload.get(&index).copied());
        });
    });
    Ok(json_bytes(status, json.finish()?))
}

fn status(all_duplicates: bool) -> StatusCode {
    if all_duplicates { StatusCode::OK } else { StatusCode::CREATED }
}

/// Payloads that are read from the store at once: each may have megabytes.
const PAYLOADS_SLICE: usize = 16;

/// Payloads of the jobs with an idempotency key, by index; only those can be duplicates.
///
/// A client that reuses a key for another payload has a defect, which `same_payload` reveals.
struct KeyedPayloads(HashMap<usize, Payload>);

impl KeyedPayloads {
    /// Clones share their bytes.
    fn of(submissions: &[ParsedSubmission]) -> Self {
        let payload = |(index, submission): (usize, &ParsedSubmission)| {
            let job = &submission.as_ref().ok()?.job;
            job.key().map(|_| (index, job.payload.clone()))
        };
        Self(submissions.iter().enumerate().filter_map(payload).collect())
    }
}

/// Compares each duplicate with the job that it repeats. Returns whether the payloads are equal, by
/// index.
async fn compare_duplicates(app: &AppState, submitted: &[Submitted], payloads: KeyedPayloads) -> HashMap<usize, bool> {
    let KeyedPayloads(payloads) = payloads;
    let duplicate = |(index, job): (usize, &Submitted)| {
        let payload = payloads.get(&index).filter(|_| job.duplicate && job.state.is_some())?;
        Some((index, job.seq, payload))
    };
    let mut equal = HashMap::new();
    if payloads.is_empty() {
        return equal;
    }
    let duplicates: Vec<(usize, Seq, &Payload)> = submitted.iter().enumerate().filter_map(duplicate).collect();
    for slice in duplicates.chunks(PAYLOADS_SLICE) {
        let earlier = app.call_store(app.store.payloads(slice.iter().map(|(_, seq, _)| *seq).collect())).await;
        // The submission is durable: the response leaves out the comparison.
        let Ok(earlier) = earlier else { break };
        let compared = slice
            .iter()
            .zip(earlier)
            .filter_map(|((index, _, payload), earlier)| Some((*index, earlier? == **payload)));
        equal.extend(compared);
    }
    equal
}

/// Bytes of a written result, about.
const RESULT_BYTES: usize = 112;

/// Writes the result of a submission as the wire type `Submitted` describes it.
fn write_submitted(json: &mut JsonWriter, job: &Submitted, same_payload: Option<bool>) {
    json.object(|json| {
        json.field("id").uuid(job.id.as_bytes());
        json.field("seq").value(&job.seq.0);
        match job.state {
            Some(state) => json.field("state").word(state.as_str()),
            None => json.field("state").null(),
        }
        json.field("duplicate").boolean(job.duplicate);
        if let Some(same) = same_payload {
            json.field("same_payload").boolean(same);
        }
    });
}

#[cfg(test)]
mod tests {
    use longshore_core::id::JobId;
    use longshore_core::state::StateKind;

    use super::*;

    #[test]
    fn a_result_is_written_as_serde_writes_it() {
        for state in [None, Some(StateKind::Scheduled), Some(StateKind::DeadLetter)] {
            for (duplicate, same_payload) in [(false, None), (true, Some(true)), (true, Some(false))] {
                let (id, seq, membership) = (JobId::from_bytes([9; 16]), Seq(12), None);
                let job = Submitted { id, seq, state, duplicate, membership };
                let mut json = JsonWriter::default();
                write_submitted(&mut json, &job, same_payload);
                let (id, seq) = (job.id.to_string(), job.seq.0);
                let expected = longshore_api::job::Submitted { id, seq, state, duplicate, same_payload };
                assert_eq!(json.finish().unwrap(), serde_json::to_vec(&expected).unwrap());
            }
        }
    }
}
