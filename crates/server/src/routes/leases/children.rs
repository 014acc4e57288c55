//! `POST /v1/jobs/{id}/children`: a running job submits jobs, and optionally their finalizer.

use axum::http::StatusCode;
use longshore_api::work::{Children, ChildrenCreated};
use longshore_core::lease;
use longshore_engine::SubmitRequest;
use serde_json::value::RawValue;

use crate::access::CallerState as State;
use crate::convert::settlement::token;
use crate::routes::batch::{Batch, QueueField};
use crate::routes::jobs::get::find;
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, json};

/// Checks the lease first, so that a request without it learns nothing about the children.
pub(crate) async fn children(
    State(app): State<AppState>,
    JobPath(id): JobPath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let Children::<&RawValue> { lease, jobs, finally } = body.required()?;
    let token = token(lease.as_deref());
    let parent = find(&app, id).await?;
    lease::check(&parent, token, app.now())?;
    Batch::check_size(jobs.len())?;
    let mut batch = Batch::default();
    for job in &jobs {
        batch.add(job.get(), &parent.queue, QueueField::Allowed);
    }
    if let Some(finally) = finally {
        batch.add_at("finally".to_owned(), finally.get(), &parent.queue, QueueField::Allowed);
    }
    let with_finally = finally.is_some();
    let request = |mut members: Vec<_>| {
        let finally = if with_finally { members.pop().map(Box::new) } else { None };
        SubmitRequest { parent: Some((id, token)), finally, ..SubmitRequest::parsed(members) }
    };
    let mut submitted = batch.submit(&app, request, Batch::refusal).await?;
    // 200: every job is a duplicate, because the client repeats a request.
    let status = if submitted.iter().all(|job| job.duplicate) { StatusCode::OK } else { StatusCode::CREATED };
    let finally = if with_finally { submitted.pop() } else { None };
    let created = ChildrenCreated {
        jobs: submitted.iter().map(|job| job.id.to_string()).collect(),
        finally: finally.map(|job| job.id.to_string()),
    };
    json(status, &created)
}
