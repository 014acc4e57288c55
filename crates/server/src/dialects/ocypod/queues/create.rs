//! `POST /queue/{name}/job`

use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use longshore_core::id::JobType;
use longshore_core::ocypod::status::OCYPOD_TYPE;
use longshore_core::profile::Profile;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::tags::Tags;
use longshore_engine::{Submission, SubmitRequest};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::duration::OcypodDuration;
use super::super::request::{OcypodRequest, payload_max};
use super::super::response::{Answer, OcypodError, at, json};
use super::super::settings::Given as Settings;

/// All of it may be left out, or be `null`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Given<'a> {
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    tags: Option<Vec<String>>,
    timeout: Option<OcypodDuration>,
    heartbeat_timeout: Option<OcypodDuration>,
    expires_after: Option<OcypodDuration>,
    retries: Option<u64>,
    retry_delays: Option<Vec<OcypodDuration>>,
}

pub(crate) async fn create(call: OcypodRequest) -> Answer {
    let (app, queue) = (call.app.clone(), call.queue());
    // What a body may weigh is the queue's business; whether there is one is told only after the body was read.
    let known = call.known_queue().await;
    let bytes_max = known.as_ref().map_or(payload_max(), |report| report.queue.intake.payload_max);
    let body = call.json_around(bytes_max)?;
    let given: Given<'_> = body.object()?;
    let queue = queue?;
    known?;
    let mut request = SubmitRequest::new(vec![Submission { queue: queue.clone(), job: read(given)? }]);
    request.require_profile = Some(Profile::Ocypod);
    match app.submit(request).await? {
        Ok(submitted) => {
            let id = submitted
                .first()
                .map(|job| job.seq)
                .ok_or_else(|| OcypodError::empty_body(StatusCode::INTERNAL_SERVER_ERROR))?;
            at(json(StatusCode::CREATED, &id.0)?, &format!("/job/{id}"))
        }
        Err(refusal) => Err(OcypodError::refused(refusal.first, &queue, None)),
    }
}

fn read(given: Given<'_>) -> Result<NewJob, OcypodError> {
    let Given { input, tags, timeout, heartbeat_timeout, expires_after, retries, retry_delays } = given;
    let input = input.map_or(Bytes::from_static(b"null"), |input| Bytes::copy_from_slice(input.get().as_bytes()));
    let mut job = NewJob::new(JobType::new(OCYPOD_TYPE)?, Payload::Json(input));
    job.tags = tags.map_or(Tags::None, |tags| Tags::List(tags.into_iter().map(Arc::from).collect()));
    job.policy = Settings { timeout, heartbeat_timeout, expires_after, retries, retry_delays }.of_job()?;
    Ok(job)
}
