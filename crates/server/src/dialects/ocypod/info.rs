//! `/health`, `/info` and `/info/version`

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use longshore_core::id::{JobType, QueueName};
use longshore_core::job::Job;
use longshore_core::ocypod::status::{OCYPOD_TYPE, Status};
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_engine::count_of;
use longshore_store::{JobFilter, QueueStats};
use serde::Serialize;

use super::jobs::for_each_job;
use super::request::{OcypodRequest, is_valid_queue_name};
use super::response::{OcypodError, OcypodResult, ok};
use crate::state::AppState;

/// The version of Ocypod that this dialect implements.
const VERSION: &str = "0.8.0";

/// `GET /info/version`
pub(super) async fn version(_: OcypodRequest) -> OcypodResult {
    ok(&VERSION)
}

#[derive(Serialize)]
struct OcypodHealth {
    status: &'static str,
}

/// `GET /health`: 503 if the store does not answer.
pub(super) async fn health(call: OcypodRequest) -> OcypodResult {
    call.app.call_store(call.app.store.queues()).await?;
    if call.app.store_health.has_failed() {
        let text = "the store has failed: restart the server";
        return Err(OcypodError::own(StatusCode::SERVICE_UNAVAILABLE, text));
    }
    ok(&OcypodHealth { status: "healthy" })
}

#[derive(Serialize)]
struct OcypodInfo {
    queues: BTreeMap<String, StatusCounts>,
    statistics: Statistics,
}

#[derive(Default, Serialize)]
struct StatusCounts {
    queued: u64,
    running: u64,
    failed: u64,
    completed: u64,
    cancelled: u64,
    timed_out: u64,
}

impl StatusCounts {
    fn add(&mut self, status: Status) {
        let counter = match status {
            Status::Queued => &mut self.queued,
            Status::Running => &mut self.running,
            Status::Failed => &mut self.failed,
            Status::Completed => &mut self.completed,
            Status::Cancelled => &mut self.cancelled,
            Status::TimedOut => &mut self.timed_out,
        };
        *counter += 1;
    }
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "field names of the wire format")]
struct Statistics {
    total_jobs_created: u64,
    total_jobs_completed: u64,
    total_jobs_retried: u64,
    total_jobs_failed: u64,
    total_jobs_timed_out: u64,
    total_jobs_cancelled: u64,
}

/// `GET /info`
pub(super) async fn info(call: OcypodRequest) -> OcypodResult {
    let app = &call.app;
    let reports = app.call_store(app.store.queues()).await?;
    let mut queues = BTreeMap::new();
    for report in reports.iter().filter(|report| is_ocypod_queue(report)) {
        queues.insert(report.queue.name.to_string(), counts(app, report).await?);
    }
    let existing: BTreeSet<&QueueName> = reports.iter().map(|report| &report.queue.name).collect();
    count_deleted_queues(app, &existing, &mut queues).await?;
    let totals = app.call_store(app.store.ocypod_totals()).await?;
    let statistics = Statistics {
        total_jobs_created: totals.created,
        total_jobs_completed: totals.completed,
        total_jobs_retried: totals.retried,
        total_jobs_failed: totals.failed,
        total_jobs_timed_out: totals.timed_out,
        total_jobs_cancelled: totals.cancelled,
    };
    ok(&OcypodInfo { queues, statistics })
}

/// Whether a queue has the profile `ocypod` and a name that is valid in Ocypod.
pub(super) fn is_ocypod_queue(report: &QueueStats) -> bool {
    report.queue.profile == Profile::Ocypod && is_valid_queue_name(report.queue.name.as_str())
}

/// Counts jobs by status. Only failures are read one by one: the store does not count timeouts.
async fn counts(app: &AppState, report: &QueueStats) -> Result<StatusCounts, OcypodError> {
    let of = |state| count_of(&report.counts, state);
    let mut counts = StatusCounts {
        queued: of(StateKind::Pending) + of(StateKind::Scheduled) + of(StateKind::Delayed),
        running: of(StateKind::Running),
        completed: of(StateKind::Completed),
        cancelled: of(StateKind::Cancelled),
        ..StatusCounts::default()
    };
    for state in [StateKind::Retrying, StateKind::Failed, StateKind::DeadLetter] {
        if of(state) > 0 {
            let filter =
                JobFilter { queue: Some(report.queue.name.clone()), states: state.into(), ..JobFilter::default() };
            for_each_job(app, filter, |job| counts.add(Status::of(job))).await?;
        }
    }
    Ok(counts)
}

/// Adds deleted queues that still have jobs.
async fn count_deleted_queues(
    app: &AppState,
    existing: &BTreeSet<&QueueName>,
    queues: &mut BTreeMap<String, StatusCounts>,
) -> Result<(), OcypodError> {
    let job_type = JobType::new(OCYPOD_TYPE)?;
    let mut count = |job: &Job| {
        if !existing.contains(&job.queue) && job.policy.profile == Profile::Ocypod {
            queues.entry(job.queue.to_string()).or_default().add(Status::of(job));
        }
    };
    for state in
        [StateKind::Running, StateKind::Completed, StateKind::Failed, StateKind::DeadLetter, StateKind::Cancelled]
    {
        let filter = JobFilter { job_type: Some(job_type.clone()), states: state.into(), ..JobFilter::default() };
        for_each_job(app, filter, &mut count).await?;
    }
    Ok(())
}
