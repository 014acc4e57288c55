//! The wire form of operations.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_api::operation as wire;
use longshore_core::Timestamp;
use longshore_core::id::JobId;
use longshore_core::job::Job;
use longshore_core::operation::{Canary, CanaryOutcome, OperationState};
use longshore_core::state::StateKind;
use longshore_store::{Store, StoreError};

use super::storage::StoredOperation;
use super::work::canary_jobs;
use crate::convert::{time, times};

/// Returns the wire form. Reads the canary jobs whose outcome is not recorded yet.
pub(crate) async fn to_wire(
    store: &dyn Store,
    stored: &StoredOperation,
    now: Timestamp,
) -> Result<wire::BulkOperation, StoreError> {
    let op = &stored.operation;
    let is_open = op.canary.iter().flat_map(|canary| &canary.jobs).any(|job| job.outcome.is_none());
    let jobs = if is_open { canary_jobs(store, op).await? } else { HashMap::new() };
    let is_paced = op.state == OperationState::Running && op.rate.is_some();
    Ok(wire::BulkOperation {
        id: stored.id.to_string(),
        action: op.action,
        filter: stored.filter.clone(),
        rate: op.rate,
        dry_run: op.dry_run,
        state: op.state,
        matched: op.count.matched,
        counted: op.count.is_complete,
        changed: op.changed,
        refused: op.refused,
        remaining: op.remaining(),
        refusals: op.refusals.iter().map(|(code, number)| (code.to_string(), *number)).collect(),
        canary: op.canary.as_ref().map(|canary| canary_to_wire(canary, &jobs)),
        created_at: time(op.created_at),
        updated_at: time(op.updated_at),
        ended_at: times(op.ended_at),
        next_at: is_paced.then(|| time(op.next_at)),
        undo_until: times(op.undo_until().filter(|until| *until > now)),
        undo: op.undo.map(|undo| wire::OperationUndo {
            state: undo.state,
            at: time(undo.at),
            undone: undo.undone,
            kept: undo.kept,
        }),
    })
}

fn canary_to_wire(canary: &Canary, jobs: &HashMap<JobId, Arc<Job>>) -> wire::OperationCanary {
    let mut shown = wire::OperationCanary {
        size: canary.size,
        jobs: Vec::new(),
        ended: 0,
        outcomes: wire::CanaryOutcomes::default(),
        continued_at: times(canary.continued_at),
    };
    for job in &canary.jobs {
        let (state, error_code) = match &job.outcome {
            Some(CanaryOutcome::Ended { state, error_code }) => (Some(*state), error_code.clone()),
            Some(CanaryOutcome::Gone) => (None, None),
            None => jobs.get(&job.id).map_or((None, None), |job| {
                (Some(job.kind()), job.error.as_ref().and_then(|error| error.code.clone()))
            }),
        };
        let outcomes = &mut shown.outcomes;
        let counter = match state {
            Some(StateKind::Completed) => Some(&mut outcomes.completed),
            Some(StateKind::Failed) => Some(&mut outcomes.failed),
            Some(StateKind::DeadLetter) => Some(&mut outcomes.dead_letter),
            Some(StateKind::Cancelled) => Some(&mut outcomes.cancelled),
            Some(
                StateKind::Pending
                | StateKind::Scheduled
                | StateKind::Delayed
                | StateKind::Running
                | StateKind::Retrying,
            ) => None,
            None => Some(&mut outcomes.gone),
        };
        if let Some(counter) = counter {
            *counter += 1;
            shown.ended += 1;
        }
        let error_code = error_code.map(|code| code.to_string());
        shown.jobs.push(wire::CanaryJob { id: job.id.to_string(), state, error_code });
    }
    shown
}
