//! One step of an operation: count, plan a slice, treat it, watch the canary, drop old chunks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration as Wait;

use futures_util::{StreamExt, stream};
use longshore_core::cancel::Force;
use longshore_core::id::{JobId, OperationId};
use longshore_core::job::Job;
use longshore_core::operation::planned::{PlannedJob, TreatedJob};
use longshore_core::operation::{
    CanaryOutcome, OperationAction, OperationProgress, OperationStep, PlannedSlice, SliceResult, UNDO_WINDOW,
};
use longshore_core::refusal::Refusal;
use longshore_core::requeue::{Requeue, Reset};
use longshore_core::{Duration, Timestamp};
use longshore_engine::{AdminCommand, AdminResponse};
use longshore_store::{JobRef, Store, StoreError};

use super::selection::Selection;
use super::storage::{self, Chunk, StoredOperation};
use super::take_back;
use crate::background::dead_letters::DeadLetters;

/// How long a server may work on an operation before another takes over.
const LEASE: Duration = Duration::from_secs(10);
/// A lease that ends sooner is renewed before jobs are changed.
const LEASE_LEFT_MIN: Duration = Duration::from_secs(6);
/// The longest treatment of a slice. What is left is done by the next step.
const TREATMENT_MAX: Wait = Wait::from_secs(5);
/// Commands in flight: a slice shares commits.
pub(super) const CONCURRENCY: usize = 100;
/// Pages that one step counts.
const COUNTED_PAGES: usize = 5;
/// Chunks that one step drops.
const DROPPED_MAX: u64 = 20;

/// The server that works.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkingServer {
    pub(super) number: u64,
    /// No other server uses the store: leases of earlier runs mean nothing.
    pub(super) is_alone: bool,
}

/// When the next step is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    Now,
    At(Timestamp),
    /// As soon as the canary jobs have ended.
    Watch,
    /// Not before a client changes the operation.
    Rest,
    /// There is nothing to do any more.
    Settled,
}

impl WorkingServer {
    /// Returns until when another server works on the operation.
    fn held_by_another(self, stored: &StoredOperation, now: Timestamp) -> Option<Timestamp> {
        let (_, until) = stored.holder.filter(|(server, until)| *server != self.number && *until > now)?;
        (!self.is_alone).then_some(until)
    }

    fn hold(self, stored: &mut StoredOperation, now: Timestamp) {
        stored.holder = Some((self.number, now + LEASE));
    }

    /// Makes sure that this server holds the operation long enough to change jobs. Returns `false`
    /// if another server was faster.
    async fn renew(self, store: &dyn Store, stored: &mut StoredOperation, now: Timestamp) -> Result<bool, StoreError> {
        let lasts = |until: Timestamp| until.since(now) >= LEASE_LEFT_MIN;
        if stored.holder.is_some_and(|(server, until)| server == self.number && lasts(until)) {
            return Ok(true);
        }
        self.hold(stored, now);
        storage::write(store, stored, [], false).await
    }
}

/// Does the next step of an operation. Deleted jobs are reported to the groups of dead letters,
/// because no event does.
pub(super) async fn step(
    store: &dyn Store,
    server: WorkingServer,
    id: OperationId,
    dead_letters: &DeadLetters,
) -> Result<NextStep, StoreError> {
    let Some(mut stored) = storage::read(store, id).await? else { return Ok(NextStep::Settled) };
    let now = store.now();
    let step = stored.operation.next_step(now);
    match step {
        OperationStep::Rest(_) if stored.operation.is_settled() => return Ok(NextStep::Settled),
        OperationStep::Rest(None) => return Ok(NextStep::Rest),
        OperationStep::Rest(Some(at)) => return Ok(NextStep::At(at)),
        OperationStep::WatchCanary => return watch_canary(store, stored, now).await,
        OperationStep::Count
        | OperationStep::Plan { .. }
        | OperationStep::Treat
        | OperationStep::Undo
        | OperationStep::DropChunks => {}
    }
    if let Some(until) = server.held_by_another(&stored, now) {
        return Ok(NextStep::At(until));
    }
    match step {
        OperationStep::Count => count(store, server, stored, now).await?,
        OperationStep::Plan { jobs } => plan(store, server, stored, jobs, now).await?,
        OperationStep::Treat => {
            if server.renew(store, &mut stored, now).await? {
                treat(store, server, stored, dead_letters).await?;
            }
        }
        OperationStep::Undo => {
            if server.renew(store, &mut stored, now).await? {
                take_back::undo_chunk(store, stored).await?;
            }
        }
        OperationStep::DropChunks => drop_chunks(store, stored, now).await?,
        OperationStep::Rest(_) | OperationStep::WatchCanary => {}
    }
    Ok(NextStep::Now)
}

fn selection_of(stored: &StoredOperation) -> Result<Selection, StoreError> {
    let invalid = |_| StoreError::corrupt("the filter of an operation is invalid");
    Selection::parse(stored.filter.clone()).map_err(invalid)
}

async fn count(
    store: &dyn Store,
    server: WorkingServer,
    mut stored: StoredOperation,
    now: Timestamp,
) -> Result<(), StoreError> {
    let selection = selection_of(&stored)?;
    let (matched, before) = selection.count(store, stored.operation.count.before, COUNTED_PAGES).await?;
    stored.operation.record_count(matched, before, now);
    server.hold(&mut stored, now);
    // A conflict is not counted: the next step reads the record again.
    storage::write(store, &mut stored, [], false).await.map(drop)
}

async fn plan(
    store: &dyn Store,
    server: WorkingServer,
    mut stored: StoredOperation,
    jobs: usize,
    now: Timestamp,
) -> Result<(), StoreError> {
    let selection = selection_of(&stored)?;
    let operation = &mut stored.operation;
    let selected = selection.select(store, operation.before, jobs).await?;
    // Numbers of several servers are no exact order: a job may be younger than its number says.
    let started_at = operation.created_at;
    let jobs = selected.jobs.iter().filter(|job| job.created_at <= started_at);
    let jobs = jobs.map(|job| PlannedJob::of(job, operation.action)).collect();
    let slice = PlannedSlice { jobs, planned_at: now, before: selected.before, is_last: selected.is_last };
    operation.plan(slice, now);
    server.hold(&mut stored, now);
    storage::write(store, &mut stored, [], false).await.map(drop)
}

/// Changes the jobs of the slice, then records the result. A slice that was interrupted is
/// repeated: jobs that it has changed already count as changed.
async fn treat(
    store: &dyn Store,
    server: WorkingServer,
    mut stored: StoredOperation,
    dead_letters: &DeadLetters,
) -> Result<(), StoreError> {
    let Some(slice) = stored.operation.slice.clone() else { return Ok(()) };
    let treatment = treat_jobs(store, stored.operation.action, &slice.jobs);
    let Ok(result) = tokio::time::timeout(TREATMENT_MAX, treatment).await else { return Ok(()) };
    let result = result?;
    if stored.operation.action == OperationAction::Delete {
        result.changed.iter().for_each(|job| dead_letters.on_delete(job.planned.id));
    }
    loop {
        let now = store.now();
        let number = stored.operation.record_slice(&result, now);
        let chunk = number.map(|number| (number, Some(Chunk { treated_at: now, jobs: result.changed.clone() })));
        server.hold(&mut stored, now);
        if storage::write(store, &mut stored, chunk, false).await? {
            return Ok(());
        }
        // A client has stopped the operation, or another server has taken it over.
        match storage::read(store, stored.id).await? {
            Some(present) if present.operation.slice.as_ref() == Some(&slice) => stored = present,
            Some(_) | None => return Ok(()),
        }
    }
}

async fn treat_jobs(
    store: &dyn Store,
    action: OperationAction,
    planned: &[PlannedJob],
) -> Result<SliceResult, StoreError> {
    let present = jobs(store, planned.iter().map(|job| job.id)).await?;
    let treat = |planned: &PlannedJob| treat_job(store, action, planned.clone(), present.get(&planned.id).cloned());
    let verdicts: Vec<_> = stream::iter(planned.iter().map(treat)).buffered(CONCURRENCY).collect().await;
    let mut result = SliceResult::default();
    for verdict in verdicts {
        match verdict? {
            Ok(treated) => result.changed.push(treated),
            Err(code) => result.refused.push(code),
        }
    }
    Ok(result)
}

/// Changes one job. Returns it, or the code of the refusal.
async fn treat_job(
    store: &dyn Store,
    action: OperationAction,
    planned: PlannedJob,
    job: Option<Arc<Job>>,
) -> Result<Result<TreatedJob, Arc<str>>, StoreError> {
    if planned.is_changed(action, job.as_deref()) {
        let clone = job.and_then(|job| job.requeued_as).filter(|_| !planned.was_cloned);
        return Ok(Ok(TreatedJob { planned, clone }));
    }
    let id = planned.id;
    let command = match action {
        OperationAction::Requeue => AdminCommand::Requeue { id, how: Requeue { counters: Reset::Zero, run_at: None } },
        OperationAction::Cancel => AdminCommand::Cancel { id, reason: None, force: Force::ByPolicy },
        OperationAction::Delete => AdminCommand::Delete { id },
        OperationAction::RunNow => AdminCommand::RunNow { id },
    };
    Ok(match store.admin(command).await? {
        Ok(AdminResponse::State { id: runs, .. }) => Ok(TreatedJob { planned, clone: (runs != id).then_some(runs) }),
        Ok(
            AdminResponse::Done
            | AdminResponse::CancelRequested
            | AdminResponse::QueuePut { .. }
            | AdminResponse::Workflow { .. },
        ) => Ok(TreatedJob { planned, clone: None }),
        Err(refusal) => Err(Arc::from(Refusal::code(&refusal))),
    })
}

/// Reads jobs by id.
pub(super) async fn jobs(
    store: &dyn Store,
    ids: impl Iterator<Item = JobId>,
) -> Result<HashMap<JobId, Arc<Job>>, StoreError> {
    let ids: Vec<JobRef> = ids.map(JobRef::Id).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    Ok(store.get(ids).await?.into_iter().flatten().map(|job| (job.id, job)).collect())
}

/// Returns how the canary jobs have ended; `None`: that one has not.
pub(crate) fn canary_outcomes(
    operation: &OperationProgress,
    jobs: &HashMap<JobId, Arc<Job>>,
) -> Vec<Option<CanaryOutcome>> {
    let outcome = |id: &JobId| match jobs.get(id) {
        None => Some(CanaryOutcome::Gone),
        Some(job) => job.state.terminal().then(|| CanaryOutcome::Ended {
            state: job.kind(),
            error_code: job.error.as_ref().and_then(|error| error.code.clone()),
        }),
    };
    operation.canary.iter().flat_map(|canary| &canary.jobs).map(|job| outcome(&job.id)).collect()
}

/// Reads the canary jobs of an operation.
pub(crate) async fn canary_jobs(
    store: &dyn Store,
    operation: &OperationProgress,
) -> Result<HashMap<JobId, Arc<Job>>, StoreError> {
    jobs(store, operation.canary.iter().flat_map(|canary| &canary.jobs).map(|job| job.id)).await
}

async fn watch_canary(store: &dyn Store, mut stored: StoredOperation, now: Timestamp) -> Result<NextStep, StoreError> {
    let jobs = canary_jobs(store, &stored.operation).await?;
    let outcomes = canary_outcomes(&stored.operation, &jobs);
    if !stored.operation.record_canary(outcomes, now) {
        return Ok(NextStep::Watch);
    }
    storage::write(store, &mut stored, [], true).await?;
    Ok(NextStep::Now)
}

async fn drop_chunks(store: &dyn Store, mut stored: StoredOperation, now: Timestamp) -> Result<(), StoreError> {
    let chunks = stored.operation.chunks;
    let mut dropped = Vec::new();
    let mut next_at = None;
    for number in chunks.first..chunks.next.min(chunks.first.saturating_add(DROPPED_MAX)) {
        let chunk = storage::chunk(store, stored.id, number).await?;
        match chunk.map(|chunk| chunk.treated_at).filter(|at| *at + UNDO_WINDOW > now) {
            Some(at) => {
                next_at = Some(at);
                break;
            }
            None => dropped.push((number, None)),
        }
    }
    let first = chunks.first + dropped.len() as u64;
    // The next chunk was not read: the next step reads it.
    let next_at = next_at.or_else(|| (first < chunks.next).then_some(chunks.first_at));
    stored.operation.record_dropped(first, next_at);
    storage::write(store, &mut stored, dropped, false).await.map(drop)
}

/// Releases the hold on an operation, so that another server can continue at once.
pub(super) async fn release(store: &dyn Store, server: WorkingServer, id: OperationId) -> Result<(), StoreError> {
    let Some(mut stored) = storage::read(store, id).await? else { return Ok(()) };
    if stored.holder.is_some_and(|(holder, _)| holder == server.number) && !stored.operation.is_settled() {
        stored.holder = None;
        storage::write(store, &mut stored, [], true).await?;
    }
    Ok(())
}
