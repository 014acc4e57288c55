//! The workers of all servers: this server reports what it has seen, and merges the reports of
//! others.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_api::system::Worker;
use longshore_core::Timestamp;
use longshore_core::directive::WorkerDirective;
use longshore_core::id::{JobType, QueueName, WorkerName};
use longshore_store::{ReportedWorker, SeenWorker, StoreError};
use tokio::time::sleep;

use super::worker_registry::{EVICT_AFTER, LocalWorker};
use crate::convert::time;
use crate::state::AppState;

/// Time between two reports. A worker that is new is reported at once.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// How old `last_seen_at` of a report may be.
const REPORT_LAG_MAX: Duration = Duration::from_secs(15);
/// The running jobs of a report count for this long; their server may have died.
const REPORT_VALID_MS: i64 = 60_000;
/// A worker of another server serves its queues for this long after it was seen.
const RECENT_MS: i64 = 60_000;

/// Reports the workers of this server until it has drained.
pub(crate) async fn keep_reporting(app: AppState) {
    loop {
        let reports = app.workers.take_reports(REPORT_LAG_MAX);
        if !reports.is_empty()
            && let Err(error) = app.store.report_workers(reports.clone()).await
        {
            tracing::debug!(%error, "workers not reported to other servers: trying again");
            app.workers.report_again(&reports);
        }
        tokio::select! {
            () = app.drained.cancelled() => return,
            () = app.workers.new_worker() => {}
            () = sleep(REPORT_INTERVAL) => {}
        }
    }
}

/// A worker of one or more servers.
#[derive(Debug)]
struct MergedWorker {
    latest: SeenWorker,
    /// Jobs claimed from this server and known here.
    local_running: u64,
    /// Jobs that all servers have counted as claimed from them.
    own_running: u64,
    waiting: u64,
}

/// Returns the workers of all servers that were seen within 24 hours, by name.
pub(crate) async fn workers(app: &AppState) -> Result<Vec<Worker>, StoreError> {
    let (now, since) = (app.now(), seen_since(app.now()));
    let reported = app.store.reported_workers(since).await?;
    let merged = merge(app.workers.workers(), reported, now).into_iter();
    let is_listed =
        |worker: &MergedWorker| worker.latest.last_seen_at >= since || worker.waiting > 0 || worker.local_running > 0;
    let listed = merged.map(|(_, worker)| worker).filter(is_listed);
    Ok(listed.map(|worker| to_wire(worker, app)).collect())
}

/// Returns one worker if it was seen within 24 hours.
pub(crate) async fn worker(app: &AppState, name: &WorkerName) -> Result<Option<Worker>, StoreError> {
    Ok(workers(app).await?.into_iter().find(|worker| worker.name == name.as_str()))
}

/// Whether a worker of another server claims jobs of this type from the queue.
pub(crate) async fn is_served_elsewhere(
    app: &AppState,
    queue: &QueueName,
    job_type: &JobType,
) -> Result<bool, StoreError> {
    Ok(recent_elsewhere(app).await?.iter().any(|worker| serves(worker, queue, Some(job_type))))
}

/// Returns the workers of other servers that claim jobs, as seen within the last minute.
pub(crate) async fn recent_elsewhere(app: &AppState) -> Result<Vec<SeenWorker>, StoreError> {
    let since = Timestamp::from_millis(app.now().as_millis().saturating_sub(RECENT_MS));
    let reported = app.store.reported_workers(since).await?.into_iter().map(|worker| worker.seen);
    Ok(reported.filter(|seen| app.store.directive(Some(&seen.name)) == WorkerDirective::Run).collect())
}

/// Whether a worker claims jobs of this type, or of any type, from the queue.
pub(crate) fn serves(worker: &SeenWorker, queue: &QueueName, job_type: Option<&JobType>) -> bool {
    let takes = |job_type: &JobType| worker.types.is_empty() || worker.types.contains(job_type);
    worker.queues.contains(queue) && job_type.is_none_or(takes)
}

fn seen_since(now: Timestamp) -> Timestamp {
    let millis = i64::try_from(EVICT_AFTER.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(millis))
}

fn merge(local: Vec<LocalWorker>, reported: Vec<ReportedWorker>, now: Timestamp) -> BTreeMap<WorkerName, MergedWorker> {
    let local = local.into_iter().map(|worker| {
        let LocalWorker { seen, running, waiting } = worker;
        let own_running = seen.running;
        (seen.name.clone(), MergedWorker { latest: seen, local_running: running, own_running, waiting })
    });
    let mut merged: BTreeMap<WorkerName, MergedWorker> = local.collect();
    for ReportedWorker { seen, reported_at } in reported {
        let is_valid = now.as_millis().saturating_sub(reported_at.as_millis()) <= REPORT_VALID_MS;
        let running = if is_valid { seen.running } else { 0 };
        match merged.get_mut(&seen.name) {
            Some(worker) => {
                worker.own_running += running;
                if seen.last_seen_at > worker.latest.last_seen_at {
                    worker.latest = seen;
                }
            }
            None => {
                let name = seen.name.clone();
                merged.insert(name, MergedWorker { latest: seen, local_running: 0, own_running: running, waiting: 0 });
            }
        }
    }
    merged
}

fn to_wire(worker: MergedWorker, app: &AppState) -> Worker {
    let MergedWorker { latest, local_running, own_running, waiting } = worker;
    Worker {
        directive: app.store.directive(Some(&latest.name)),
        name: latest.name.to_string(),
        version: latest.version,
        types: latest.types.iter().map(ToString::to_string).collect(),
        queues: latest.queues.iter().map(ToString::to_string).collect(),
        // A heartbeat at this server shows jobs that were claimed from another one.
        running: local_running.max(own_running),
        waiting,
        last_seen_at: time(latest.last_seen_at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, running: u64, at: i64) -> SeenWorker {
        let name = WorkerName::new(name).unwrap();
        let last_seen_at = Timestamp::from_millis(at);
        SeenWorker { name, version: None, types: Vec::new(), queues: Vec::new(), running, last_seen_at }
    }

    #[test]
    fn running_jobs_of_a_fleet_are_counted_once() {
        let local = LocalWorker { seen: seen("w", 2, 70_000), running: 3, waiting: 1 };
        let report = |name, running, at| ReportedWorker {
            seen: seen(name, running, at),
            reported_at: Timestamp::from_millis(at),
        };
        // The last report of w is too old: its server may have died.
        let reports = vec![report("w", 4, 80_000), report("x", 1, 90_000), report("w", 9, 1_000)];
        let merged = merge(vec![local], reports, Timestamp::from_millis(90_000));
        let of = |name: &str| &merged[&WorkerName::new(name).unwrap()];
        assert_eq!((of("w").local_running, of("w").own_running, of("w").waiting), (3, 6, 1));
        assert_eq!(of("w").latest.last_seen_at, Timestamp::from_millis(80_000));
        assert_eq!((of("x").local_running, of("x").own_running), (0, 1));
    }
}
