//! `POST /v1/queues/{queue}/jobs`: submit a job, or an array of jobs.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use longshore_api::job::{Submitted as WireSubmitted, SubmittedBatch};
use longshore_core::id::{QueueName, Seq};
use longshore_core::submit::Payload;
use longshore_engine::{ParsedSubmission, SubmitRequest, Submitted};
use serde_json::value::RawValue;

use crate::routes::batch::{Batch, QueueField, to_wire};
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::path::QueuePath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, json};

pub(crate) async fn submit(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    _: NoQuery,
    IdempotencyKeyHeader(key): IdempotencyKeyHeader,
    body: JsonBody,
) -> ApiResult {
    let text = body.text()?;
    match serde_json::from_str::<Vec<&RawValue>>(text) {
        Ok(_) if key.is_some() => Err(ApiError::validation(
            IDEMPOTENCY_KEY,
            "is for a single job: set idempotency_key in each job of an array",
        )),
        Ok(jobs) => submit_batch(&app, &queue, &jobs).await,
        Err(_) => submit_one(&app, &queue, text, key).await,
    }
}

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The header `Idempotency-Key`.
#[derive(Debug)]
pub(crate) struct IdempotencyKeyHeader(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKeyHeader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut values = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
        let key = match (values.next(), values.next()) {
            (None, _) => return Ok(Self(None)),
            (Some(key), None) => key,
            (Some(_), Some(_)) => return Err(ApiError::validation(IDEMPOTENCY_KEY, "must be given once")),
        };
        let text = std::str::from_utf8(key.as_bytes());
        let text = text.map_err(|_| ApiError::validation(IDEMPOTENCY_KEY, "must be UTF-8"))?;
        Ok(Self(Some(text.to_owned())))
    }
}

async fn submit_one(app: &AppState, queue: &QueueName, text: &str, key: Option<String>) -> ApiResult {
    let mut batch = Batch::with_header_key(key);
    batch.add(text, queue, QueueField::Refused);
    if let Some(error) = batch.take_invalid_item() {
        return Err(error.into());
    }
    let payloads = KeyedPayloads::of(&batch.members);
    let submitted = batch.submit(app, SubmitRequest::parsed, Batch::single_refusal).await?;
    match compare_duplicates(app, &submitted, payloads).await.first() {
        Some(job) => json(status(job.duplicate), job),
        None => Err(ApiError::bad_request("no job was submitted")),
    }
}

async fn submit_batch(app: &AppState, queue: &QueueName, jobs: &[&RawValue]) -> ApiResult {
    Batch::check_size(jobs.len())?;
    let mut batch = Batch::default();
    for job in jobs {
        batch.add(job.get(), queue, QueueField::Refused);
    }
    let payloads = KeyedPayloads::of(&batch.members);
    let submitted = batch.submit(app, SubmitRequest::parsed, Batch::refusal).await?;
    let status = status(submitted.iter().all(|job| job.duplicate));
    json(status, &SubmittedBatch { jobs: compare_duplicates(app, &submitted, payloads).await })
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

/// Converts the results of a submission. Compares each duplicate with the job that it repeats.
async fn compare_duplicates(app: &AppState, submitted: &[Submitted], payloads: KeyedPayloads) -> Vec<WireSubmitted> {
    let mut responses: Vec<WireSubmitted> = submitted.iter().map(to_wire).collect();
    let KeyedPayloads(payloads) = payloads;
    let duplicate = |(index, job): (usize, &Submitted)| {
        let payload = payloads.get(&index).filter(|_| job.duplicate && job.state.is_some())?;
        Some((index, job.seq, payload))
    };
    let duplicates: Vec<(usize, Seq, &Payload)> = submitted.iter().enumerate().filter_map(duplicate).collect();
    for slice in duplicates.chunks(PAYLOADS_SLICE) {
        let earlier = app.call_store(app.store.payloads(slice.iter().map(|(_, seq, _)| *seq).collect())).await;
        // The submission is durable: the response leaves out the comparison.
        let Ok(earlier) = earlier else { break };
        for ((index, _, payload), earlier) in slice.iter().zip(earlier) {
            if let Some(response) = responses.get_mut(*index) {
                response.same_payload = earlier.map(|earlier| earlier == **payload);
            }
        }
    }
    responses
}
