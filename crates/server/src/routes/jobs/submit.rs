//! `POST /v1/queues/{queue}/jobs`

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use longshore_api::job::SubmittedBatch;
use longshore_core::id::QueueName;
use longshore_engine::SubmitRequest;
use serde_json::value::RawValue;

use super::same_payload::{KeyedPayloads, tell};
use crate::app::AppState;
use crate::routes::batch::{Batch, QueueField};
use crate::wire::answer::{Answer, json};
use crate::wire::body::JsonBody;
use crate::wire::path::QueuePath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;

/// One job, or an array of them.
pub(crate) async fn submit(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    _: NoQuery,
    IdempotencyKey(key): IdempotencyKey,
    body: JsonBody,
) -> Answer {
    let text = body.text()?;
    match serde_json::from_str::<Vec<&RawValue>>(text) {
        Ok(_) if key.is_some() => {
            Err(ApiError::validation(IDEMPOTENCY_KEY, "is for a single job: give each job of an array its own field"))
        }
        Ok(members) => submit_batch(&app, &queue, &members).await,
        Err(_) => submit_one(&app, &queue, text, key).await,
    }
}

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The header `Idempotency-Key`, taken as it stands.
#[derive(Debug)]
pub(crate) struct IdempotencyKey(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut given = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
        let key = match (given.next(), given.next()) {
            (None, _) => return Ok(Self(None)),
            (Some(key), None) => key,
            (Some(_), Some(_)) => return Err(ApiError::validation(IDEMPOTENCY_KEY, "must be given once")),
        };
        let text = std::str::from_utf8(key.as_bytes());
        let text = text.map_err(|_| ApiError::validation(IDEMPOTENCY_KEY, "must be UTF-8"))?;
        Ok(Self(Some(text.to_owned())))
    }
}

async fn submit_one(app: &AppState, queue: &QueueName, text: &str, key: Option<String>) -> Answer {
    let mut batch = Batch::with_header_key(key);
    batch.add(text, queue, QueueField::Refused)?;
    if let Some(failure) = batch.take_unreadable() {
        return Err(failure.into());
    }
    let payloads = KeyedPayloads::of(&batch.members);
    let submitted = batch.submit(app, SubmitRequest::new, Batch::single_refusal).await?;
    match tell(app, &submitted, payloads).await.first() {
        Some(job) => json(status(job.duplicate), job),
        None => Err(ApiError::bad_request("no job was given")),
    }
}

async fn submit_batch(app: &AppState, queue: &QueueName, members: &[&RawValue]) -> Answer {
    Batch::check_size(members.len())?;
    let mut batch = Batch::default();
    for member in members {
        batch.add(member.get(), queue, QueueField::Refused)?;
    }
    let payloads = KeyedPayloads::of(&batch.members);
    let submitted = batch.submit(app, SubmitRequest::new, Batch::refusal).await?;
    let status = status(submitted.iter().all(|job| job.duplicate));
    json(status, &SubmittedBatch { jobs: tell(app, &submitted, payloads).await })
}

fn status(nothing_new: bool) -> StatusCode {
    if nothing_new { StatusCode::OK } else { StatusCode::CREATED }
}
