//! Ticks: due timers, retention and bulk operations, then the archive. Any node may run one;
//! several nodes share the work in slices.

use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_codec as codec;
use longshore_core::id::Seq;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_engine::{Ticked, ordering};
use longshore_store::StoreError;
use tokio::sync::oneshot;

use crate::archive::run_housekeeping;
use crate::connection::{TxBoundary, get, stmt};
use crate::error::TxError;
use crate::request::{TxRequest, TxResponse};
use crate::retry::{LockWait, TransactionRunner};
use crate::row::{IndexColumns, number_of};

/// Timers that are read to find the next one: heartbeats may have moved some.
const TIMERS_MAX: i64 = 32;

pub(crate) async fn tick(
    runner: &mut TransactionRunner,
    budget: NonZeroUsize,
    lock_wait: LockWait,
) -> Result<Ticked, StoreError> {
    runner.node.begin_tick();
    let ticked = run_tick(runner, budget, lock_wait).await;
    // After a failure the caller ticks again, which reads all timers.
    runner.node.end_tick(ticked.as_ref().ok().and_then(|ticked| ticked.next));
    ticked.map_err(TxError::into_store_error)
}

async fn run_tick(
    runner: &mut TransactionRunner,
    budget: NonZeroUsize,
    lock_wait: LockWait,
) -> Result<Ticked, TxError> {
    let (reply, _) = oneshot::channel();
    let mut next_slice = run_housekeeping(runner).await?;
    let committed = runner.execute(&[TxRequest::Tick(budget, reply)], lock_wait).await?;
    let Some(TxResponse::Tick(ticked)) = committed.answers.first() else {
        return Err(TxError::Damaged("response to a tick".to_owned()));
    };
    let (now, ticked) = (committed.now, *ticked);
    runner.node.publish_effects(committed.effects, None);
    if committed.archivable {
        next_slice = run_housekeeping(runner).await?.or(next_slice);
    }
    match next_deadline(runner, now).await {
        Ok(next) => Ok(Ticked { done: ticked.done, next: next.into_iter().chain(next_slice).min() }),
        Err(error) => {
            runner.reset_connection(&error).await;
            Err(error)
        }
    }
}

/// Returns when the next timer is due. The result is never late. It may be early if heartbeats have
/// moved more than [`TIMERS_MAX`] timers.
async fn next_deadline(runner: &mut TransactionRunner, now: Timestamp) -> Result<Option<Timestamp>, TxError> {
    let node = Arc::clone(&runner.node);
    let (sql, catalog) = (&node.sql, node.catalog());
    if catalog.queues.values().any(|queue| queue.deleting.is_some()) {
        return Ok(Some(now));
    }
    let calls =
        [stmt!(sql.next_due, TIMERS_MAX), stmt!(sql.next_prune, node.slack_ms()), stmt!(sql.has_active_operation)];
    let mut rows = runner.connection().await?.pipeline(&calls, TxBoundary::None).await?.into_iter();
    let timers = rows.next().unwrap_or_default();
    let prune = rows.next().unwrap_or_default();
    let operation = rows.next().unwrap_or_default();
    if operation.first().map(|row| get(row, 0)).transpose()? == Some(true) {
        return Ok(Some(now));
    }
    let mut first: Option<i64> = match prune.first() {
        Some(row) => get(row, 0)?,
        None => None,
    };
    for row in &timers {
        let (due_at, ready_position): (i64, Option<i64>) = (get(row, 1)?, get(row, 3)?);
        let seq = Seq(get::<i64>(row, 0)?.cast_unsigned());
        let job = codec::job::decode(seq, &get::<Vec<u8>>(row, 4)?, &catalog.names);
        let due = job.map(|job| {
            let reclaimable = ready_position.is_some() && number_of(job.kind()) == number_of(StateKind::Running);
            IndexColumns::of(&job, ordering(&job, reclaimable)).due.map(|(at, _)| at)
        });
        // The next tick reports a record that cannot be decoded.
        first = first.into_iter().chain(due.unwrap_or(Some(due_at))).min();
    }
    if i64::try_from(timers.len()).unwrap_or(i64::MAX) >= TIMERS_MAX
        && let Some(row) = timers.last()
    {
        first = first.into_iter().chain([get::<i64>(row, 1)?]).min();
    }
    Ok(first.map(Timestamp::from_millis))
}
