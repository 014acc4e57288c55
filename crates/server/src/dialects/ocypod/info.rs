//! `/info` and `/info/version`

use std::collections::{BTreeMap, BTreeSet};

use longshore_core::id::{JobType, QueueName};
use longshore_core::job::Job;
use longshore_core::ocypod::status::{OCYPOD_TYPE, Status};
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_engine::count_of;
use longshore_store::{JobFilter, QueueStats};
use serde::Serialize;

use super::jobs::each;
use super::request::{OcypodRequest, is_valid_queue_name};
use super::response::{Answer, OcypodError, ok};
use crate::app::AppState;

/// The version of Ocypod whose words these are.
const VERSION: &str = "0.8.0";

pub(super) async fn version(_: OcypodRequest) -> Answer {
    ok(&VERSION)
}

#[derive(Serialize)]
struct Info {
    queues: BTreeMap<String, Counts>,
    statistics: Statistics,
}

#[derive(Default, Serialize)]
struct Counts {
    queued: u64,
    running: u64,
    failed: u64,
    completed: u64,
    cancelled: u64,
    timed_out: u64,
}

impl Counts {
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
#[expect(clippy::struct_field_names, reason = "the names of the wire")]
struct Statistics {
    total_jobs_created: u64,
    total_jobs_completed: u64,
    total_jobs_retried: u64,
    total_jobs_failed: u64,
    total_jobs_timed_out: u64,
    total_jobs_cancelled: u64,
}

pub(super) async fn info(call: OcypodRequest) -> Answer {
    let app = &call.app;
    let reports = app.call_store(app.store.queues()).await?;
    let mut queues = BTreeMap::new();
    for report in reports.iter().filter(|report| is_ours(report)) {
        queues.insert(report.queue.name.to_string(), counts(app, report).await?);
    }
    let there: BTreeSet<&QueueName> = reports.iter().map(|report| &report.queue.name).collect();
    left_behind(app, &there, &mut queues).await?;
    let totals = app.call_store(app.store.ocypod_totals()).await?;
    let statistics = Statistics {
        total_jobs_created: totals.created,
        total_jobs_completed: totals.completed,
        total_jobs_retried: totals.retried,
        total_jobs_failed: totals.failed,
        total_jobs_timed_out: totals.timed_out,
        total_jobs_cancelled: totals.cancelled,
    };
    ok(&Info { queues, statistics })
}

/// Of the dialect, and with a name that it can spell.
pub(super) fn is_ours(report: &QueueStats) -> bool {
    report.queue.profile == Profile::Ocypod && is_valid_queue_name(report.queue.name.as_str())
}

/// Most are counted already; only which of the failures timed out is told by the jobs themselves.
async fn counts(app: &AppState, report: &QueueStats) -> Result<Counts, OcypodError> {
    let of = |state| count_of(&report.counts, state);
    let mut counts = Counts {
        queued: of(StateKind::Pending) + of(StateKind::Scheduled) + of(StateKind::Delayed),
        running: of(StateKind::Running),
        completed: of(StateKind::Completed),
        cancelled: of(StateKind::Cancelled),
        ..Counts::default()
    };
    for state in [StateKind::Retrying, StateKind::Failed, StateKind::DeadLetter] {
        if of(state) > 0 {
            let filter =
                JobFilter { queue: Some(report.queue.name.clone()), states: state.into(), ..JobFilter::default() };
            each(app, filter, |job| counts.add(Status::of(job))).await?;
        }
    }
    Ok(counts)
}

/// A queue that is gone is shown while there are jobs of it.
async fn left_behind(
    app: &AppState,
    there: &BTreeSet<&QueueName>,
    queues: &mut BTreeMap<String, Counts>,
) -> Result<(), OcypodError> {
    let job_type = JobType::new(OCYPOD_TYPE)?;
    let mut count = |job: &Job| {
        if !there.contains(&job.queue) && job.policy.profile == Profile::Ocypod {
            queues.entry(job.queue.to_string()).or_default().add(Status::of(job));
        }
    };
    for state in
        [StateKind::Running, StateKind::Completed, StateKind::Failed, StateKind::DeadLetter, StateKind::Cancelled]
    {
        let filter = JobFilter { job_type: Some(job_type.clone()), states: state.into(), ..JobFilter::default() };
        each(app, filter, &mut count).await?;
    }
    Ok(())
}
