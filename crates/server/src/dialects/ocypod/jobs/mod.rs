//! Jobs by their numbers.

pub(super) mod delete;
pub(super) mod get;
pub(super) mod heartbeat;
pub(super) mod output;
pub(super) mod patch;
pub(super) mod status;

use std::sync::Arc;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::profile::Profile;
use longshore_store::{JobFilter, JobQuery, JobRef};

use super::response::OcypodError;
use crate::app::AppState;

/// Whether the dialect knows the job. Its queue may be gone.
pub(super) fn is_ours(job: &Job) -> bool {
    job.policy.profile == Profile::Ocypod
}

pub(super) async fn look(app: &AppState, id: Seq) -> Result<Option<Arc<Job>>, OcypodError> {
    let found = app.call_store(app.store.get(vec![JobRef::Seq(id)])).await?;
    Ok(found.into_iter().next().flatten().filter(|job| is_ours(job)))
}

pub(super) async fn find(app: &AppState, id: Seq) -> Result<Arc<Job>, OcypodError> {
    look(app, id).await?.ok_or_else(|| OcypodError::no_job(id))
}

/// Shows every job that matches, newest first.
pub(super) async fn each(app: &AppState, filter: JobFilter, mut show: impl FnMut(&Job)) -> Result<(), OcypodError> {
    let mut query = JobQuery { filter, limit: BATCH_ITEMS_MAX, before: None };
    loop {
        let page = app.call_store(app.store.list(query.clone())).await?;
        page.jobs.iter().for_each(|job| show(job));
        match page.next {
            Some(next) => query.before = Some(next),
            None => return Ok(()),
        }
    }
}
