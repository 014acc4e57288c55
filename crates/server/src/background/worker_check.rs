//! Compares the running jobs of the worker registry with the store, in bounded batches.
//!
//! In a fleet, other servers complete jobs that this one leased.

use std::time::Duration;

use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_store::{JobRef, StoreError};
use tokio::time::{sleep, timeout};

use crate::state::AppState;

/// The background task compares each job with the store this often.
const AGE_MAX: Duration = Duration::from_secs(30);
/// Pause after a batch that was not full.
const PAUSE: Duration = Duration::from_secs(5);
/// How long `GET /v1/workers` waits for the store before it shows the registry unchecked.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until the server has drained.
pub(crate) async fn keep_checking(app: AppState) {
    loop {
        // After an error the task pauses and tries again.
        let is_full = tokio::select! {
            () = app.drained.cancelled() => return,
            checked = check(&app, AGE_MAX) => checked.is_ok_and(|checked| checked == BATCH_ITEMS_MAX),
        };
        if !is_full {
            tokio::select! {
                () = app.drained.cancelled() => return,
                () = sleep(PAUSE) => {}
            }
        }
    }
}

/// Checks one batch now, for `GET /v1/workers`. Jobs that were checked longest ago come first.
pub(crate) async fn check_now(app: &AppState) {
    let checked = timeout(CHECK_TIMEOUT, check(app, Duration::ZERO)).await;
    if !matches!(checked, Ok(Ok(_))) {
        tracing::debug!("worker list not checked: the store did not answer in time");
    }
}

/// Compares up to [`BATCH_ITEMS_MAX`] jobs that were not compared for `age`. Returns their number.
async fn check(app: &AppState, age: Duration) -> Result<usize, StoreError> {
    let stale = app.workers.stale_assignments(BATCH_ITEMS_MAX, age);
    if stale.is_empty() {
        return Ok(0);
    }
    let jobs = app.store.get(stale.iter().map(|assignment| JobRef::Id(assignment.id)).collect()).await?;
    for (assignment, job) in stale.iter().zip(&jobs) {
        let running = job.as_ref().and_then(|job| {
            let lease = job.state.lease()?;
            let last_seen = job.last_heartbeat_at.max(job.started_at).unwrap_or(job.updated_at);
            Some((lease.worker.as_ref(), last_seen))
        });
        app.workers.resolve(*assignment, running);
    }
    Ok(stale.len())
}
