//! Workflows: handed in, grown, looked at, and what people do to all of their jobs at once.

pub(crate) mod add_jobs;
pub(crate) mod cancel;
pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod get;
pub(crate) mod list;
mod parse;
pub(crate) mod retry;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use longshore_api::workflow::{Workflow as Shown, WorkflowCreated};
use longshore_core::id::WorkflowId;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::workflow::Workflow;
use longshore_engine::{AdminCommand, Submitted};

use crate::app::AppState;
use crate::convert::enums::ToWire;
use crate::convert::{text, time};
use crate::wire::answer::{Answer, json};
use crate::wire::problem::ApiError;

pub(crate) async fn find(app: &AppState, id: WorkflowId) -> Result<Arc<Workflow>, ApiError> {
    app.call_store(app.store.workflow(id)).await?.ok_or_else(|| Refusal::WorkflowNotFound.into())
}

/// Gives a command to a workflow, and shows what it is now. `unfinished`: the answer while something is left to be done.
async fn command(app: &AppState, id: WorkflowId, command: AdminCommand, unfinished: StatusCode) -> Answer {
    let before = find(app, id).await?;
    app.admin(command).await?;
    // One whose members have all gone goes with the command that closes it.
    let gone = || Workflow { open: false, operation: None, ..Workflow::clone(&before) };
    let workflow = app.call_store(app.store.workflow(id)).await?.map_or_else(gone, Arc::unwrap_or_clone);
    let status = if workflow.state().terminal() {
        StatusCode::OK
    } else if workflow.operation.is_some() {
        // More members than one command may touch: the rest follows.
        StatusCode::ACCEPTED
    } else {
        unfinished
    };
    json(status, &shown(&workflow))
}

fn shown(workflow: &Workflow) -> Shown {
    let tally = &workflow.tally;
    let total: u64 = tally.counts.iter().sum();
    Shown {
        id: workflow.id.to_string(),
        name: text(workflow.name.as_ref()),
        state: workflow.state().wire(),
        open: workflow.open,
        created_at: time(workflow.created_at),
        counts: StateKind::ALL.iter().map(|state| (state.wire(), tally.of(*state))).collect(),
        ended: total - tally.alive(),
        total,
    }
}

/// What a submission has made. Whatever joins a workflow is called something there.
fn made(submitted: &[Submitted]) -> Option<WorkflowCreated> {
    let id = submitted.iter().find_map(|job| job.membership.as_ref())?.workflow.to_string();
    let named = |job: &Submitted| Some((job.membership.as_ref()?.reference.to_string(), job.id.to_string()));
    Some(WorkflowCreated { id, jobs: submitted.iter().filter_map(named).collect::<BTreeMap<_, _>>() })
}

fn made_by(submitted: &[Submitted]) -> Answer {
    let odd = || ApiError::new(longshore_api::ErrorCode::Internal, "jobs were taken and joined no workflow");
    let status = if submitted.iter().all(|job| job.duplicate) { StatusCode::OK } else { StatusCode::CREATED };
    json(status, &made(submitted).ok_or_else(odd)?)
}
