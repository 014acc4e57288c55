//! One job: its record or view, payload, attempts, history, and the results of its dependencies.

use std::sync::Arc;

use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use longshore_api::enums::View;
use longshore_api::job::{Attempts, History};
use longshore_api::workflow::{Input, Inputs};
use longshore_core::id::JobId;
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Refusal;
use longshore_core::submit::Payload;
use longshore_store::JobRef;

use super::record::record_of;
use crate::access::CallerState as State;
use crate::convert::job::{attempt, transition, with_payload};
use crate::convert::raw;
use crate::convert::view::viewed;
use crate::state::AppState;
use crate::wire::path::JobPath;
use crate::wire::problem::ApiError;
use crate::wire::query::{NoQuery, Query};
use crate::wire::response::{ApiResult, JSON, ok};

/// `GET /v1/jobs/{id}`
pub(crate) async fn get(State(app): State<AppState>, JobPath(id): JobPath, mut query: Query) -> ApiResult {
    let include = query.one_of("include", &["payload"], |word| (word == "payload").then_some(()))?;
    let view = query.one_of("view", View::WORDS, View::parse)?;
    query.end()?;
    if include.is_some() && view.is_some() {
        return Err(ApiError::validation("include", "cannot be combined with view: a view has its own fields"));
    }
    let job = find(&app, id).await?;
    match view {
        None if include.is_none() => ok(&record_of(&app, job).await?),
        None => {
            let payload = read_payload(&app, &job).await?;
            ok(&with_payload(record_of(&app, job).await?, payload.as_ref()))
        }
        Some(view @ View::Ocypod) => ok(&viewed(&job, view, app.now(), read_payload(&app, &job).await?.as_ref())),
        Some(view @ (View::Gopherqueue | View::Taskharbor | View::Weave | View::Document)) => {
            ok(&viewed(&job, view, app.now(), None))
        }
    }
}

/// `GET /v1/jobs/{id}/payload`: the submitted bytes.
pub(crate) async fn payload(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery) -> ApiResult {
    let job = find(&app, id).await?;
    let payload = read_payload(&app, &job).await?.ok_or(Refusal::JobNotFound)?;
    let kind = match &payload {
        Payload::Json(_) => JSON,
        Payload::Binary(_) => HeaderValue::from_static("application/octet-stream"),
    };
    // The bytes come from a user: a browser must not interpret them as HTML.
    let sniff = HeaderValue::from_static("nosniff");
    let headers = [(header::CONTENT_TYPE, kind), (header::X_CONTENT_TYPE_OPTIONS, sniff)];
    Ok((headers, payload.bytes().clone()).into_response())
}

/// `GET /v1/jobs/{id}/attempts`
pub(crate) async fn attempts(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery) -> ApiResult {
    let job = find(&app, id).await?;
    ok(&Attempts { attempts: job.attempts.iter().map(attempt).collect() })
}

/// `GET /v1/jobs/{id}/history`
pub(crate) async fn history(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery) -> ApiResult {
    let job = find(&app, id).await?;
    ok(&History { history: job.history.transitions().iter().map(transition).collect() })
}

/// Dependencies that are read from the store at once.
const INPUTS_SLICE: usize = 100;
/// A page of inputs ends early once its results have this many bytes.
const INPUTS_PAGE_BYTES_MAX: usize = 16 << 20;

/// `GET /v1/jobs/{id}/inputs`: the results of a job's dependencies.
pub(crate) async fn inputs(State(app): State<AppState>, JobPath(id): JobPath, mut query: Query) -> ApiResult {
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(BATCH_ITEMS_MAX);
    let mut cursor = query.up_to("cursor", 0, usize::MAX)?.unwrap_or(0);
    query.end()?;
    let job = find(&app, id).await?;
    let ids = job.dependencies.all();
    let (mut inputs, mut bytes) = (Vec::new(), 0);
    while inputs.len() < limit && bytes < INPUTS_PAGE_BYTES_MAX {
        let slice = INPUTS_SLICE.min(limit - inputs.len());
        let slice: Vec<JobId> = ids.iter().skip(cursor).take(slice).copied().collect();
        if slice.is_empty() {
            break;
        }
        let jobs = app.call_store(app.store.get(slice.iter().map(|id| JobRef::Id(*id)).collect())).await?;
        for (id, dependency) in slice.iter().zip(&jobs) {
            inputs.push(input(*id, dependency.as_deref()));
            cursor += 1;
            bytes += dependency.as_ref().and_then(|job| job.result.as_ref()).map_or(0, bytes::Bytes::len);
            if bytes >= INPUTS_PAGE_BYTES_MAX {
                break;
            }
        }
    }
    let next = (cursor < ids.len()).then(|| cursor.to_string());
    ok(&Inputs { inputs, next })
}

fn input(id: JobId, dependency: Option<&Job>) -> Input {
    Input {
        id: id.to_string(),
        reference: dependency.and_then(|job| Some(job.membership.as_ref()?.reference.to_string())),
        state: dependency.map(|job| job.kind()),
        result: dependency.and_then(|job| job.result.as_ref()).map(raw::to_raw_json),
    }
}

pub(crate) async fn find(app: &AppState, id: JobId) -> Result<Arc<Job>, ApiError> {
    let jobs = app.call_store(app.store.get(vec![JobRef::Id(id)])).await?;
    jobs.into_iter().next().flatten().ok_or_else(|| Refusal::JobNotFound.into())
}

async fn read_payload(app: &AppState, job: &Job) -> Result<Option<Payload>, ApiError> {
    let payloads = app.call_store(app.store.payloads(vec![job.seq])).await?;
    Ok(payloads.into_iter().next().flatten())
}
