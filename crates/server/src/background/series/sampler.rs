//! Reads the numbers of jobs from the store every few seconds, to correct the series.

use std::time::Duration;

use longshore_core::state::StateKind;
use longshore_engine::count_of;
use longshore_store::{JobFilter, JobQuery, QueueStats, StoreError};
use tokio::time::sleep;

use crate::state::AppState;

/// Time between two readings: how long changes of other servers may be missing.
const READ_INTERVAL: Duration = Duration::from_secs(5);
/// Effects of commits that a reading has seen arrive within this time.
const EFFECT_LAG: Duration = Duration::from_millis(250);

/// Queues whose ready jobs are looked at when the server starts.
const START_QUEUES_MAX: usize = 50;
/// Ready jobs of such a queue that are looked at.
const START_JOBS: usize = 100;

/// Begins the series with the numbers of jobs, and with types of jobs that are ready.
pub(crate) async fn start(app: &AppState) -> Result<(), StoreError> {
    let reports = app.store.queues().await?;
    app.series.start(app.now(), &reports);
    let has_ready = |report: &&QueueStats| count_of(&report.counts, StateKind::Scheduled) > 0;
    for report in reports.iter().filter(has_ready).take(START_QUEUES_MAX) {
        let queue = &report.queue.name;
        let filter =
            JobFilter { queue: Some(queue.clone()), states: StateKind::Scheduled.into(), ..JobFilter::default() };
        let page = app.store.list(JobQuery { filter, limit: START_JOBS, before: None }).await?;
        page.jobs.iter().for_each(|job| app.series.add_ready_type(queue, &job.job_type));
    }
    Ok(())
}

/// Corrects the series until the server has drained.
pub(crate) async fn keep_sampling(app: AppState) {
    loop {
        tokio::select! {
            () = app.drained.cancelled() => return,
            () = sleep(READ_INTERVAL) => {}
        }
        let read = tokio::select! {
            () = app.drained.cancelled() => return,
            read = read(&app) => read,
        };
        if let Err(error) = read {
            tracing::debug!(%error, "numbers of jobs not read: the series go on with the last ones");
        }
    }
}

async fn read(app: &AppState) -> Result<(), StoreError> {
    app.series.begin_reading();
    let reports = app.store.queues().await?;
    sleep(EFFECT_LAG).await;
    app.series.end_reading(app.now(), &reports);
    Ok(())
}
