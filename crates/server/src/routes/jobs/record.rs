//! Records of jobs, with the actions that are allowed now.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_api::job::Job as WireJob;
use longshore_core::actions::{allowed_actions, depends_on_dependencies};
use longshore_core::dependency::DependencyStatus;
use longshore_core::id::{JobId, QueueName};
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_store::{JobRef, QueueStats};

use crate::convert::job::record;
use crate::state::AppState;
use crate::wire::problem::ApiError;

/// Longest chain of clones that is followed to the job that replaces a dependency.
const CLONES_MAX: usize = 16;

/// Converts jobs. Queues and dependencies are read only for jobs that may be requeued.
pub(crate) async fn records(app: &AppState, jobs: &[Arc<Job>]) -> Result<Vec<WireJob>, ApiError> {
    let ended = || jobs.iter().filter(|job| job.state.terminal() && job.requeued_as.is_none());
    let mut queues: HashMap<&QueueName, Option<QueueStats>> = HashMap::new();
    for job in ended() {
        if !queues.contains_key(&job.queue) {
            queues.insert(&job.queue, app.call_store(app.store.queue(job.queue.clone())).await?);
        }
    }
    let dependent = ended().filter(|job| depends_on_dependencies(job));
    let unmet = dependent.flat_map(|job| job.dependencies.after.iter().filter(|after| !after.met));
    let dependencies = Replacements::read(app, unmet.map(|after| after.id).collect()).await?;
    let convert = |job: &Arc<Job>| {
        let admission = queues.get(&job.queue).and_then(Option::as_ref).map(|report| &report.queue.admission);
        record(job, allowed_actions(job, admission, |id| dependencies.status(id)))
    };
    Ok(jobs.iter().map(convert).collect())
}

/// Converts one job.
pub(crate) async fn record_of(app: &AppState, job: Arc<Job>) -> Result<WireJob, ApiError> {
    let mut converted = records(app, &[Arc::clone(&job)]).await?;
    Ok(converted.pop().unwrap_or_else(|| record(&job, Vec::new())))
}

/// Jobs by id, with the clones that replace them.
struct Replacements(HashMap<JobId, Arc<Job>>);

impl Replacements {
    async fn read(app: &AppState, ids: BTreeSet<JobId>) -> Result<Self, ApiError> {
        let (mut jobs, mut missing) = (HashMap::new(), Vec::from_iter(ids));
        for _ in 0..CLONES_MAX {
            let mut clones = Vec::new();
            for some in missing.chunks(BATCH_ITEMS_MAX) {
                let found = app.call_store(app.store.get(some.iter().copied().map(JobRef::Id).collect())).await?;
                for job in found.into_iter().flatten() {
                    clones.extend(job.requeued_as);
                    jobs.insert(job.id, job);
                }
            }
            if clones.is_empty() {
                break;
            }
            missing = clones;
        }
        Ok(Self(jobs))
    }

    /// Returns the status of a job, or of the last clone that replaces it and has a record.
    fn status(&self, id: JobId) -> DependencyStatus {
        let Some(mut job) = self.0.get(&id) else { return DependencyStatus::Gone };
        while let Some(clone) = job.requeued_as.and_then(|clone| self.0.get(&clone)) {
            job = clone;
        }
        DependencyStatus::of(job)
    }
}
