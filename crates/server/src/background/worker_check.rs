//! Compares the remembered running jobs with the store, in bounded batches: on a fleet other servers complete jobs that this one gave out.

use std::time::Duration;

use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_store::{JobRef, StoreError};
use tokio::time::{sleep, timeout};

use crate::app::AppState;

/// A job is compared with the store so often in the background.
const AGE_MAX: Duration = Duration::from_secs(30);
/// Pause between two background batches that found no more to do.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a request for the page waits for the store; then it shows what is remembered.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs until the server has drained.
pub(crate) async fn keep_checking(app: AppState) {
    loop {
        // A store that does not answer is asked again after the pause.
        let full = tokio::select! {
            () = app.drained.cancelled() => return,
            checked = check(&app, AGE_MAX) => checked.is_ok_and(|checked| checked == BATCH_ITEMS_MAX),
        };
        if !full {
            tokio::select! {
                () = app.drained.cancelled() => return,
                () = sleep(PAUSE) => {}
            }
        }
    }
}

/// One batch now, for the page. With more running jobs than that, the oldest news are renewed first.
pub(crate) async fn check_now(app: &AppState) {
    let checked = timeout(PATIENCE, check(app, Duration::ZERO)).await;
    if !matches!(checked, Ok(Ok(_))) {
        tracing::debug!("workers are shown without a look at the store");
    }
}

/// Compares up to [`BATCH_ITEMS_MAX`] jobs that were not compared for `age`. Returns how many.
async fn check(app: &AppState, age: Duration) -> Result<usize, StoreError> {
    let doubts = app.workers.doubts(BATCH_ITEMS_MAX, age);
    if doubts.is_empty() {
        return Ok(0);
    }
    let jobs = app.store.get(doubts.iter().map(|doubt| JobRef::Id(doubt.id)).collect()).await?;
    for (doubt, job) in doubts.iter().zip(&jobs) {
        let running = job.as_ref().and_then(|job| {
            let lease = job.state.lease()?;
            let seen = job.last_heartbeat_at.max(job.started_at).unwrap_or(job.updated_at);
            Some((lease.worker.as_ref(), seen))
        });
        app.workers.resolve(*doubt, running);
    }
    Ok(doubts.len())
}
