//! The undo of an operation: reverses the change of its jobs, the last slice first.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use longshore_core::Timestamp;
use longshore_core::job::Job;
use longshore_core::operation::planned::{TreatedJob, UndoStep, undo_step};
use longshore_core::operation::{OperationAction, UndoProgress, UndoState};
use longshore_engine::AdminCommand;
use longshore_store::{Store, StoreError};

use super::storage::{self, StoredOperation};
use super::work::{CONCURRENCY, jobs};

/// Reverses the changes of the last chunk, then records how many.
pub(super) async fn undo_chunk(store: &dyn Store, mut stored: StoredOperation) -> Result<(), StoreError> {
    let (action, chunks) = (stored.operation.action, stored.operation.chunks);
    let Some(UndoProgress { at, state: UndoState::Running, .. }) = stored.operation.undo else { return Ok(()) };
    let number = chunks.next.saturating_sub(1);
    let treated = storage::chunk(store, stored.id, number).await?.map_or_else(Vec::new, |chunk| chunk.jobs);
    let undone = undo_jobs(store, action, &treated, at).await?;
    let kept = treated.len() as u64 - undone;
    loop {
        stored.operation.record_undo(undone, kept, store.now());
        let is_over = stored.operation.undo.is_some_and(|undo| undo.state == UndoState::Done);
        if storage::write(store, &mut stored, [(number, None)], is_over).await? {
            return Ok(());
        }
        match storage::read(store, stored.id).await? {
            Some(present) if present.operation.chunks == chunks => stored = present,
            Some(_) | None => return Ok(()),
        }
    }
}

/// Returns how many jobs were reversed.
async fn undo_jobs(
    store: &dyn Store,
    action: OperationAction,
    treated: &[TreatedJob],
    undo_at: Timestamp,
) -> Result<u64, StoreError> {
    let running = |job: &TreatedJob| match action {
        OperationAction::Requeue => job.runs(),
        OperationAction::Cancel | OperationAction::Delete | OperationAction::RunNow => job.planned.id,
    };
    let present = jobs(store, treated.iter().map(running)).await?;
    let undo = |job: &TreatedJob| {
        let step = undo_step(action, job, present.get(&running(job)).map(|job: &Arc<Job>| &**job), undo_at);
        undo_job(store, step)
    };
    let results: Vec<_> = stream::iter(treated.iter().map(undo)).buffered(CONCURRENCY).collect().await;
    results.into_iter().try_fold(0, |undone, is_undone| Ok(undone + u64::from(is_undone?)))
}

async fn undo_job(store: &dyn Store, step: UndoStep) -> Result<bool, StoreError> {
    let command = match step {
        UndoStep::Requeue(id, how) => AdminCommand::Requeue { id, how },
        UndoStep::Reversal(id, how) => AdminCommand::TakeBack { id, how: Box::new(how) },
        UndoStep::Undone => return Ok(true),
        UndoStep::Keep => return Ok(false),
    };
    Ok(store.admin(command).await?.is_ok())
}
