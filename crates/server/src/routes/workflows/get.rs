//! `GET /v1/workflows` and `GET /v1/workflows/{id}`

use std::sync::Arc;

use longshore_api::enums::WorkflowState;
use longshore_api::workflow::{Member, Workflow as WireWorkflow, WorkflowWithJobs, Workflows};
use longshore_core::id::{Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::workflow::Workflow;
use longshore_store::{MemberQuery, WorkflowQuery};

use crate::access::CallerState as State;
use crate::convert::{text, time};
use crate::state::AppState;
use crate::wire::path::WorkflowPath;
use crate::wire::problem::ApiError;
use crate::wire::query::Query;
use crate::wire::response::{ApiResult, ok};

/// Workflows of a page if the query has no limit.
const LIMIT_DEFAULT: usize = 100;
/// Members of a workflow that are returned if the query has no limit.
const MEMBERS_MAX: usize = 10_000;

/// `GET /v1/workflows`, newest first.
pub(crate) async fn list(State(app): State<AppState>, mut query: Query) -> ApiResult {
    let state = query.one_of("state", WorkflowState::WORDS, WorkflowState::parse)?;
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let before = query.cursor()?;
    query.end()?;
    let page = app.call_store(app.store.workflows(WorkflowQuery { state, limit, before })).await?;
    ok(&Workflows {
        workflows: page.workflows.iter().map(|workflow| to_wire(workflow)).collect(),
        next: page.next.map(|number| number.to_string()),
    })
}

/// `GET /v1/workflows/{id}`, with its members.
pub(crate) async fn get(State(app): State<AppState>, WorkflowPath(id): WorkflowPath, mut query: Query) -> ApiResult {
    let limit = query.up_to("limit", 0, BATCH_ITEMS_MAX)?.unwrap_or(MEMBERS_MAX);
    let after = query.cursor()?.unwrap_or(Seq(0));
    query.end()?;
    let workflow = to_wire(&*find(&app, id).await?);
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
                // The page may end exactly at the last member.
                let more = app.call_store(app.store.members(MemberQuery { workflow, limit: 1, after: next })).await?;
                let has_more = !more.jobs.is_empty() || more.next.is_some();
                return Ok((members, has_more.then_some(next)));
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
        state: job.kind(),
        queue: job.queue.to_string(),
        job_type: job.job_type.to_string(),
        after: dependencies.after.iter().map(|after| after.id.to_string()).collect(),
        after_any: dependencies.after_any.iter().map(ToString::to_string).collect(),
    }
}

pub(super) fn to_wire(workflow: &Workflow) -> WireWorkflow {
    let tally = &workflow.tally;
    let total: u64 = tally.counts.iter().sum();
    WireWorkflow {
        id: workflow.id.to_string(),
        name: text(workflow.name.as_ref()),
        state: workflow.state(),
        open: workflow.open,
        created_at: time(workflow.created_at),
        counts: StateKind::ALL.iter().map(|state| (*state, tally.of(*state))).collect(),
        ended: total - tally.unfinished(),
        total,
    }
}

pub(super) async fn find(app: &AppState, id: WorkflowId) -> Result<Arc<Workflow>, ApiError> {
    app.call_store(app.store.workflow(id)).await?.ok_or_else(|| Refusal::WorkflowNotFound.into())
}
