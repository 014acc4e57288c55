//! `GET /queue/{name}/job`

use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_engine::ClaimRequest;
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::job::input;
use super::super::request::OcypodRequest;
use super::super::response::{Answer, OcypodError, done};
use crate::routes::leases::delivery::into_response;

#[derive(Serialize)]
struct ClaimedJob {
    id: u64,
    input: Option<Box<RawValue>>,
}

/// The first in line becomes running, and is the caller's.
pub(crate) async fn take(call: OcypodRequest) -> Answer {
    let name = call.known_queue().await?.queue.name.clone();
    let terms = ClaimOptions { worker: None, lease: None, execution_timeout: None };
    let request = ClaimRequest { queues: vec![name], limit: 1, types: Vec::new(), terms };
    let grant = call.app.claim(request, Duration::ZERO).await?;
    let Some(job) = grant.jobs().first() else { return done() };
    let taken = ClaimedJob { id: job.claimed.seq.0, input: input(Some(&job.payload)) };
    let bytes = serde_json::to_vec(&taken).map_err(|_| OcypodError::empty_body(StatusCode::INTERNAL_SERVER_ERROR))?;
    Ok(into_response(Bytes::from(bytes), grant))
}
