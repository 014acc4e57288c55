//! `GET /v1/workflows/{id}`

use axum::extract::State;
use longshore_api::workflow::{Member, WorkflowWithJobs};
use longshore_core::id::{Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_store::MemberQuery;

use super::{find, shown};
use crate::app::AppState;
use crate::convert::enums::ToWire;
use crate::wire::answer::{Answer, ok};
use crate::wire::path::WorkflowPath;
use crate::wire::problem::ApiError;
use crate::wire::query::Query;

/// Members that are shown unless somebody asks for fewer: more are for those who turn pages.
const MEMBERS_MAX: usize = 10_000;

pub(crate) async fn get(State(app): State<AppState>, WorkflowPath(id): WorkflowPath, mut query: Query) -> Answer {
    let limit = query.up_to("limit", 0, BATCH_ITEMS_MAX)?.unwrap_or(MEMBERS_MAX);
    let after = query.cursor()?.unwrap_or(Seq(0));
    query.end()?;
    let workflow = shown(&*find(&app, id).await?);
    let (jobs, next) = if limit == 0 { (Vec::new(), None) } else { members(&app, id, after, limit).await? };
    ok(&WorkflowWithJobs { workflow, jobs, next: next.map(|seq| seq.to_string()) })
}

async fn members(
    app: &AppState,
    workflow: WorkflowId,
    mut after: Seq,
    limit: usize,
) -> Result<(Vec<Member>, Option<Seq>), ApiError> {
    let mut members = Vec::new();
    loop {
        let query = MemberQuery { workflow, limit: BATCH_ITEMS_MAX.min(limit - members.len()), after };
        let page = app.call_store(app.store.members(query)).await?;
        members.extend(page.jobs.iter().map(|job| member(job)));
        match page.next {
            None => return Ok((members, None)),
            Some(next) if members.len() >= limit => {
                // The last one may have been the last of all.
                let more = app.call_store(app.store.members(MemberQuery { workflow, limit: 1, after: next })).await?;
                let more = !more.jobs.is_empty() || more.next.is_some();
                return Ok((members, more.then_some(next)));
            }
            Some(next) => after = next,
        }
    }
}

fn member(job: &Job) -> Member {
    let dependencies = &job.dependencies;
    Member {
        reference: job.membership.as_ref().map(|membership| membership.reference.to_string()).unwrap_or_default(),
        id: job.id.to_string(),
        state: job.kind().wire(),
        queue: job.queue.to_string(),
        job_type: job.job_type.to_string(),
        after: dependencies.after.iter().map(|after| after.id.to_string()).collect(),
        after_any: dependencies.after_any.iter().map(ToString::to_string).collect(),
    }
}
