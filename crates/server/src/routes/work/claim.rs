//! `POST /v1/claims`

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use axum::extract::State;
use bytes::Bytes;
use longshore_api::work::{Claim, Claimed};
use longshore_api::{Duration as WireDuration, ErrorCode};
use longshore_core::claim::Terms;
use longshore_core::engine::ClaimRequest;
use longshore_core::id::{JobType, QueueName, WorkerName};
use longshore_core::limits::{BATCH_ITEMS_MAX, CLAIM_TYPES_MAX};
use longshore_core::refusal::{Invalid, Refusal};
use longshore_store::{ClaimedJob, StoreError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::handed::{Untold, hand_over};
use crate::app::AppState;
use crate::convert::claimed::claimed;
use crate::convert::{length, time};
use crate::live::lobby::{Errand, Place};
use crate::wire::answer::Answer;
use crate::wire::body::JsonBody;
use crate::wire::problem::Failure;
use crate::wire::query::NoQuery;

/// The longest that a claim, or anybody else, may wait.
pub(crate) const WAIT_MAX: WireDuration = WireDuration::from_secs(60);

pub(crate) async fn claim(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> Answer {
    let given: Claim = body.required()?;
    let wait = given.wait.unwrap_or_default();
    let request = read(given)?;
    let worker = request.terms.worker.clone();
    let claiming = app.workers.asks(worker.as_ref(), &request.queues, app.now());
    let (jobs, untold) = match wait {
        WireDuration(0) => ask(&app, request).await?,
        wait => ask_and_wait(&app, request, wait.as_std()).await?,
    };
    drop(claiming);
    app.workers.given(worker.as_ref(), jobs.iter().map(|job| job.claimed.id), app.now());
    let answer = Claimed { jobs: jobs.iter().map(claimed).collect(), now: time(app.now()) };
    let bytes = serde_json::to_vec(&answer);
    let bytes = bytes.map_err(|_| Failure::new(ErrorCode::Internal, "an answer could not be written"))?;
    Ok(hand_over(Bytes::from(bytes), untold))
}

/// What a claim says by itself is checked before anybody is asked or waits.
fn read(given: Claim) -> Result<ClaimRequest, Failure> {
    if given.wait.is_some_and(|wait| wait > WAIT_MAX) {
        return Err(Failure::validation("wait", &format!("may be at most {WAIT_MAX}")));
    }
    let limit = usize::try_from(given.limit.unwrap_or(1)).unwrap_or(usize::MAX);
    if !(1..=BATCH_ITEMS_MAX).contains(&limit) {
        return Err(Failure::validation("limit", &format!("must be 1-{BATCH_ITEMS_MAX}")));
    }
    if !(1..=BATCH_ITEMS_MAX).contains(&given.queues.len()) {
        return Err(Failure::validation("queues", &format!("must name 1-{BATCH_ITEMS_MAX} queues")));
    }
    let types = given.types.unwrap_or_default();
    if types.len() > CLAIM_TYPES_MAX {
        return Err(Failure::validation("types", &format!("may name at most {CLAIM_TYPES_MAX} types")));
    }
    let queue = |name: &String| QueueName::new(name).map_err(|invalid| invalid.at("queues"));
    let job_type = |name: &String| JobType::new(name).map_err(|invalid| invalid.at("types"));
    let terms = Terms {
        worker: given.worker.as_deref().map(WorkerName::new).transpose()?,
        lease: given.lease.map(length),
        execution_timeout: given.execution_timeout.map(length),
    };
    terms.check()?;
    Ok(ClaimRequest {
        queues: given.queues.iter().map(queue).collect::<Result<_, Invalid>>()?,
        limit,
        types: types.iter().map(job_type).collect::<Result<_, Invalid>>()?,
        terms,
    })
}

pub(crate) type Given = (Vec<ClaimedJob>, Untold);

async fn ask_store(app: AppState, request: ClaimRequest) -> Result<Result<Given, Refusal>, StoreError> {
    app.store.claim(request).await.map(|claimed| {
        claimed.map(|jobs| {
            let untold = Untold::new(app.clone(), &jobs);
            (jobs, untold)
        })
    })
}

/// Asks the store for the waiting claim that is next, while the submission it would take from is on its way. The question is put at once:
/// it follows the submission into the same commit.
pub(crate) async fn ask_for_another(app: &AppState, errand: Errand) {
    let mut asking = Box::pin(ask_store(app.clone(), errand.request()));
    let bring = |errand: Errand, answer| match answer {
        Ok(Ok(given)) => errand.bring(given),
        // Whatever it is, the claim will hear it when it asks by itself.
        Ok(Err(_)) | Err(_) => drop(errand),
    };
    match poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await {
        Poll::Ready(answer) => bring(errand, answer),
        Poll::Pending => drop(app.tasks.spawn(async move { bring(errand, asking.await) })),
    }
}

/// Asks the store once, and waits for it no longer than a submission does. The question goes on by itself: should whoever asks be gone before the answer, the jobs go back.
pub(crate) async fn ask(app: &AppState, request: ClaimRequest) -> Result<Given, Failure> {
    let (tell, told) = oneshot::channel();
    let asking = ask_store(app.clone(), request);
    // Nobody there: what is in the answer is dropped, and thereby given back.
    app.tasks.spawn(async move { drop(tell.send(asking.await)) });
    let Ok(answer) = tokio::time::timeout(app.limits.submission_timeout, told).await else {
        let patience = app.limits.submission_timeout.as_secs_f64();
        let detail =
            format!("the store has not answered within {patience} s; what it hands out now goes back into line");
        return Err(Failure::new(ErrorCode::StoreUnavailable, detail));
    };
    Ok(app.noted(answer.unwrap_or(Err(StoreError::Poisoned)))??)
}

/// Asks until there is something, or the wait is over.
async fn ask_and_wait(app: &AppState, request: ClaimRequest, wait: Duration) -> Result<Given, Failure> {
    let deadline = Instant::now() + wait;
    let place: Place = app.lobby.sit(request.clone());
    let mut brought = None;
    loop {
        let given = match brought {
            Some(given) => given,
            None => ask(app, request.clone()).await?,
        };
        if given.0.len() >= request.limit {
            place.call_next();
        }
        if !given.0.is_empty() {
            return Ok(given);
        }
        tokio::select! {
            delivery = place.called() => brought = delivery,
            () = sleep_until(deadline) => return Ok(given),
            () = app.stopping.cancelled() => return Ok(given),
        }
    }
}
