//! `GET /v1/jobs/{id}`

use std::sync::Arc;

use axum::extract::State;
use longshore_api::enums::View;
use longshore_core::id::JobId;
use longshore_core::job::Job;
use longshore_core::refusal::Refusal;
use longshore_core::submit::Payload;
use longshore_store::JobRef;

use crate::app::AppState;
use crate::convert::job::{record, record_with_payload};
use crate::convert::view::viewed;
use crate::wire::answer::{Answer, ok};
use crate::wire::path::JobPath;
use crate::wire::problem::ApiError;
use crate::wire::query::Query;

pub(crate) async fn get(State(app): State<AppState>, JobPath(id): JobPath, mut query: Query) -> Answer {
    let include = query.one_of("include", &["payload"], |word| (word == "payload").then_some(()))?;
    let view = query.one_of("view", View::WORDS, View::parse)?;
    query.end()?;
    if include.is_some() && view.is_some() {
        return Err(ApiError::validation("include", "goes without view: a view has its own fields"));
    }
    let job = find(&app, id).await?;
    match view {
        None if include.is_none() => ok(&record(&job)),
        None => ok(&record_with_payload(&job, payload(&app, &job).await?.as_ref())),
        Some(view @ View::Ocypod) => ok(&viewed(&job, view, app.now(), payload(&app, &job).await?.as_ref())),
        Some(view @ (View::Gopherqueue | View::Taskharbor | View::Weave | View::Document)) => {
            ok(&viewed(&job, view, app.now(), None))
        }
    }
}

pub(crate) async fn find(app: &AppState, id: JobId) -> Result<Arc<Job>, ApiError> {
    let found = app.call_store(app.store.get(vec![JobRef::Id(id)])).await?;
    found.into_iter().next().flatten().ok_or_else(|| Refusal::JobNotFound.into())
}

pub(crate) async fn payload(app: &AppState, job: &Job) -> Result<Option<Payload>, ApiError> {
    let found = app.call_store(app.store.payloads(vec![job.seq])).await?;
    Ok(found.into_iter().next().flatten())
}
