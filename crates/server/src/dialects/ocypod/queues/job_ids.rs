//! `/queue/{name}/job_ids`

use std::cmp::Reverse;

use longshore_core::Timestamp;
use longshore_core::job::Job;
use longshore_core::ocypod::status::Status;
use longshore_core::state::State;
use longshore_store::JobFilter;
use serde::Serialize;

use super::super::jobs::{each, is_ours};
use super::super::request::OcypodRequest;
use super::super::response::{Answer, ok};

#[derive(Default, Serialize)]
struct JobIds {
    queued: Vec<u64>,
    running: Vec<u64>,
    failed: Vec<u64>,
    completed: Vec<u64>,
    cancelled: Vec<u64>,
    timed_out: Vec<u64>,
}

/// All jobs by status. A queue that is gone still has those that outlived it; one that never was has none.
pub(crate) async fn job_ids(call: OcypodRequest) -> Answer {
    let filter = JobFilter { queue: Some(call.queue()?), ..JobFilter::default() };
    let mut jobs = Vec::new();
    each(&call.app, filter, |job| {
        if is_ours(job) {
            jobs.push((Status::of(job), since(job), job.seq.0));
        }
    })
    .await?;
    let ids = |status: Status| jobs.iter().filter(move |(other, ..)| *other == status);
    let oldest_first = |status: Status| {
        let mut found: Vec<_> = ids(status).map(|(_, since, id)| (*since, *id)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    };
    let newest_first = |status: Status| {
        let mut found: Vec<_> = ids(status).map(|(_, since, id)| Reverse((*since, *id))).collect();
        found.sort_unstable();
        found.into_iter().map(|Reverse((_, id))| id).collect()
    };
    ok(&JobIds {
        queued: newest_first(Status::Queued),
        running: oldest_first(Status::Running),
        failed: oldest_first(Status::Failed),
        completed: newest_first(Status::Completed),
        cancelled: newest_first(Status::Cancelled),
        timed_out: oldest_first(Status::TimedOut),
    })
}

/// When it came where it is; among those in line, its place there.
fn since(job: &Job) -> (Timestamp, u64) {
    match &job.state {
        State::Scheduled { position } => (Timestamp::from_millis(0), *position),
        State::Pending { .. } | State::Delayed { .. } => (Timestamp::from_millis(0), job.seq.0),
        State::Running(lease) => (job.updated_at, lease.position),
        State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => (job.updated_at, 0),
    }
}
