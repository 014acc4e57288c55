//! `POST /v1/queues/{queue}/jobs`

use axum::extract::State;
use axum::http::StatusCode;
use longshore_api::job::SubmittedBatch;
use longshore_core::engine::SubmitRequest;
use longshore_core::id::QueueName;
use serde_json::value::RawValue;

use crate::app::AppState;
use crate::routes::batch::{Batch, OwnQueue, told};
use crate::wire::answer::{Answer, json};
use crate::wire::body::JsonBody;
use crate::wire::path::QueuePath;
use crate::wire::problem::Failure;
use crate::wire::query::NoQuery;

/// One job, or an array of them.
pub(crate) async fn submit(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    _: NoQuery,
    body: JsonBody,
) -> Answer {
    let text = body.text()?;
    match serde_json::from_str::<Vec<&RawValue>>(text) {
        Ok(members) => submit_batch(&app, &queue, &members).await,
        Err(_) => submit_one(&app, &queue, text).await,
    }
}

async fn submit_one(app: &AppState, queue: &QueueName, text: &str) -> Answer {
    let mut batch = Batch::default();
    batch.add(text, queue, OwnQueue::Refused)?;
    if let Some(failure) = batch.take_unreadable() {
        return Err(failure.into());
    }
    let submitted = batch.submit(app, SubmitRequest::new, Batch::single_refusal).await?;
    match submitted.first() {
        Some(job) => json(status(job.duplicate), &told(job)),
        None => Err(Failure::bad_request("no job was given")),
    }
}

async fn submit_batch(app: &AppState, queue: &QueueName, members: &[&RawValue]) -> Answer {
    Batch::check_size(members.len())?;
    let mut batch = Batch::default();
    for member in members {
        batch.add(member.get(), queue, OwnQueue::Refused)?;
    }
    let submitted = batch.submit(app, SubmitRequest::new, Batch::refusal).await?;
    let status = status(submitted.iter().all(|job| job.duplicate));
    json(status, &SubmittedBatch { jobs: submitted.iter().map(told).collect() })
}

fn status(nothing_new: bool) -> StatusCode {
    if nothing_new { StatusCode::OK } else { StatusCode::CREATED }
}
