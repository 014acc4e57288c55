//! `POST /v1/jobs/bulk`: one command for many jobs, each with its own verdict.

use std::sync::Arc;

use axum::extract::State;
use futures_util::{StreamExt, TryStreamExt, stream};
use longshore_api::admin::{Bulk, BulkFilter, BulkResult};
use longshore_api::enums::BulkAction;
use longshore_core::cancel::Force;
use longshore_core::id::{JobId, JobType, QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Invalid;
use longshore_core::requeue::{Requeue, Reset};
use longshore_engine::AdminCommand;
use longshore_store::{JobFilter, JobQuery};

use crate::app::AppState;
use crate::convert::enums::ToCore;
use crate::convert::shared;
use crate::wire::answer::{Answer, ok};
use crate::wire::body::JsonBody;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;

/// Commands under way at once: enough to share commits.
const AT_ONCE: usize = 128;
/// Pages looked at for one call.
const PAGES_MAX: usize = 64;

pub(crate) async fn bulk(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> Answer {
    let Bulk { action, filter, limit, dry_run } = body.required()?;
    let limit = usize::try_from(limit.unwrap_or(BATCH_ITEMS_MAX as u64)).unwrap_or(usize::MAX);
    if !(1..=BATCH_ITEMS_MAX).contains(&limit) {
        return Err(ApiError::validation("limit", &format!("must be 1-{BATCH_ITEMS_MAX}")));
    }
    let filter = read(filter)?;
    if filter.is_empty() {
        return Err(ApiError::validation("filter", "must say which jobs"));
    }
    let (jobs, more) = find(&app, &filter, action, limit).await?;
    let matched = jobs.len() as u64;
    let changed = if dry_run.unwrap_or(false) { 0 } else { change(&app, action, jobs).await? };
    ok(&BulkResult { matched, changed, more })
}

fn read(given: BulkFilter) -> Result<JobFilter, Invalid> {
    Ok(JobFilter {
        queue: given.queue.as_deref().map(QueueName::new).transpose().map_err(|wrong| wrong.at("filter.queue"))?,
        states: given.state.into_iter().flat_map(|states| states.0).map(ToCore::core).collect(),
        job_type: given.job_type.as_deref().map(JobType::new).transpose().map_err(|wrong| wrong.at("filter.type"))?,
        tag: shared(given.tag),
        error_code: shared(given.error_code),
        ..JobFilter::default()
    })
}

/// At most `limit` matches, newest first, and whether there are others.
async fn find(
    app: &AppState,
    filter: &JobFilter,
    action: BulkAction,
    limit: usize,
) -> Result<(Vec<JobId>, bool), ApiError> {
    let mut found = Vec::new();
    let mut before: Option<Seq> = None;
    for _ in 0..PAGES_MAX {
        // One more than is wanted says whether there are others.
        let query = JobQuery { filter: filter.clone(), limit: limit + 1 - found.len(), before };
        let page = app.call_store(app.store.list(query)).await?;
        found.extend(page.jobs.iter().filter(|job| concerns(action, job)).map(|job| job.id));
        if found.len() > limit {
            found.truncate(limit);
            return Ok((found, true));
        }
        match page.next {
            Some(next) => before = Some(next),
            None => return Ok((found, false)),
        }
    }
    // Nobody knows what lies behind.
    Ok((found, true))
}

/// A job that was already requeued as a clone has had its second chance.
fn concerns(action: BulkAction, job: &Arc<Job>) -> bool {
    match action {
        BulkAction::Requeue => job.requeued_as.is_none(),
        BulkAction::Cancel | BulkAction::Delete => true,
    }
}

/// How many of them said yes.
async fn change(app: &AppState, action: BulkAction, jobs: Vec<JobId>) -> Result<u64, ApiError> {
    let command = |id: JobId| match action {
        BulkAction::Requeue => AdminCommand::Requeue { id, how: Requeue { counters: Reset::Zero, run_at: None } },
        BulkAction::Cancel => AdminCommand::Cancel { id, reason: None, force: Force::ByPolicy },
        BulkAction::Delete => AdminCommand::Delete { id },
    };
    let commands = jobs.into_iter().map(|id| app.call_store(app.store.admin(command(id))));
    let verdicts = stream::iter(commands).buffered(AT_ONCE);
    verdicts.try_fold(0, async |changed, verdict| Ok(changed + u64::from(verdict.is_ok()))).await
}
