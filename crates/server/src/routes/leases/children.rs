//! `POST /v1/jobs/{id}/children`

use axum::extract::State;
use axum::http::StatusCode;
use longshore_api::work::{Children, ChildrenCreated};
use longshore_core::lease;
use longshore_engine::SubmitRequest;
use serde_json::value::RawValue;

use crate::app::AppState;
use crate::convert::settlement::token;
use crate::routes::batch::{Batch, QueueField};
use crate::routes::jobs::get::find;
use crate::wire::answer::{Answer, json};
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

/// A running job fans out. Whoever does not hold its lease learns nothing about the children.
pub(crate) async fn children(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> Answer {
    let Children::<&RawValue> { lease, jobs, finally } = body.required()?;
    let token = token(lease.as_deref());
    let parent = find(&app, id).await?;
    lease::check(&parent, token, app.now())?;
    Batch::check_size(jobs.len())?;
    let mut batch = Batch::default();
    for member in &jobs {
        batch.add(member.get(), &parent.queue, QueueField::Allowed)?;
    }
    if let Some(finally) = finally {
        batch.add_at("finally".to_owned(), finally.get(), &parent.queue, QueueField::Allowed)?;
    }
    let with_finally = finally.is_some();
    let request = |mut members: Vec<_>| {
        let finally = if with_finally { members.pop() } else { None };
        SubmitRequest::children(id, token, members, finally)
    };
    let mut submitted = batch.submit(&app, request, Batch::refusal).await?;
    // Nothing new: an answer was lost, and is asked for again.
    let status = if submitted.iter().all(|job| job.duplicate) { StatusCode::OK } else { StatusCode::CREATED };
    let finally = if with_finally { submitted.pop() } else { None };
    let fanned_out = ChildrenCreated {
        jobs: submitted.iter().map(|job| job.id.to_string()).collect(),
        finally: finally.map(|job| job.id.to_string()),
    };
    json(status, &fanned_out)
}
