//! `POST /v1/claims`

use axum::extract::State;
use bytes::Bytes;
use longshore_api::work::{Claim, Claimed};
use longshore_api::{Duration as WireDuration, ErrorCode};
use longshore_core::claim::ClaimOptions;
use longshore_core::id::{JobType, QueueName, WorkerName};
use longshore_core::limits::{BATCH_ITEMS_MAX, CLAIM_TYPES_MAX};
use longshore_core::refusal::Invalid;
use longshore_engine::ClaimRequest;

use super::delivery::into_response;
use crate::app::AppState;
use crate::convert::claimed::claimed;
use crate::convert::{length, time};
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;

/// The longest that a claim, or anybody else, may wait.
pub(crate) const WAIT_MAX: WireDuration = WireDuration::from_secs(60);

pub(crate) async fn claim(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> Answer {
    let given: Claim = body.required()?;
    let wait = given.wait.unwrap_or_default();
    let request = read(given)?;
    let worker = request.terms.worker.clone();
    let claiming = app.workers.claim_started(worker.as_ref(), &request.queues, app.now());
    let grant = app.claim(request, wait.as_std()).await?;
    drop(claiming);
    app.workers.jobs_assigned(worker.as_ref(), grant.jobs().iter().map(|job| job.claimed.id), app.now());
    let answer = Claimed { jobs: grant.jobs().iter().map(claimed).collect(), now: time(app.now()) };
    let bytes = serde_json::to_vec(&answer);
    let bytes = bytes.map_err(|_| ApiError::new(ErrorCode::Internal, "an answer could not be written"))?;
    Ok(into_response(Bytes::from(bytes), grant))
}

/// What a claim says by itself is checked before anybody is asked or waits.
fn read(given: Claim) -> Result<ClaimRequest, ApiError> {
    if given.wait.is_some_and(|wait| wait > WAIT_MAX) {
        return Err(ApiError::validation("wait", &format!("may be at most {WAIT_MAX}")));
    }
    let limit = usize::try_from(given.limit.unwrap_or(1)).unwrap_or(usize::MAX);
    if !(1..=BATCH_ITEMS_MAX).contains(&limit) {
        return Err(ApiError::validation("limit", &format!("must be 1-{BATCH_ITEMS_MAX}")));
    }
    if !(1..=BATCH_ITEMS_MAX).contains(&given.queues.len()) {
        return Err(ApiError::validation("queues", &format!("must name 1-{BATCH_ITEMS_MAX} queues")));
    }
    let types = given.types.unwrap_or_default();
    if types.len() > CLAIM_TYPES_MAX {
        return Err(ApiError::validation("types", &format!("may name at most {CLAIM_TYPES_MAX} types")));
    }
    let queue = |(place, name): (usize, &String)| {
        QueueName::new(name).map_err(|invalid| invalid.at(format!("queues[{place}]")))
    };
    let job_type =
        |(place, name): (usize, &String)| JobType::new(name).map_err(|invalid| invalid.at(format!("types[{place}]")));
    let terms = ClaimOptions {
        worker: given.worker.as_deref().map(WorkerName::new).transpose()?,
        lease: given.lease.map(length),
        execution_timeout: given.execution_timeout.map(length),
    };
    terms.check()?;
    Ok(ClaimRequest {
        queues: given.queues.iter().enumerate().map(queue).collect::<Result<_, Invalid>>()?,
        limit,
        types: types.iter().enumerate().map(job_type).collect::<Result<_, Invalid>>()?,
        terms,
    })
}
