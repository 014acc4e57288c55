//! `POST /v1/jobs/bulk`: requeue, cancel or delete all jobs that match a filter.

use std::sync::Arc;

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

use crate::access::CallerState as State;
use crate::convert::shared;
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, ok};

/// Commands in flight: enough to share commits.
const CONCURRENCY: usize = 128;
/// Pages that one request scans.
const PAGES_MAX: usize = 64;

pub(crate) async fn bulk(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> ApiResult {
    let Bulk { action, filter, limit, dry_run } = body.required()?;
    let limit = usize::try_from(limit.unwrap_or(BATCH_ITEMS_MAX as u64)).unwrap_or(usize::MAX);
    if !(1..=BATCH_ITEMS_MAX).contains(&limit) {
        return Err(ApiError::validation("limit", &format!("must be 1-{BATCH_ITEMS_MAX}")));
    }
    let filter = parse(filter)?;
    if filter.is_empty() {
        return Err(ApiError::validation("filter", "must select jobs: set at least one field"));
    }
    let (jobs, more) = find(&app, &filter, action, limit).await?;
    let matched = jobs.len() as u64;
    let changed = if dry_run.unwrap_or(false) { 0 } else { change(&app, action, jobs).await? };
    ok(&BulkResult { matched, changed, more })
}

fn parse(filter: BulkFilter) -> Result<JobFilter, Invalid> {
    Ok(JobFilter {
        queue: filter.queue.as_deref().map(QueueName::new).transpose().map_err(|invalid| invalid.at("filter.queue"))?,
        states: filter.state.into_iter().flat_map(|states| states.0).collect(),
        job_type: filter
            .job_type
            .as_deref()
            .map(JobType::new)
            .transpose()
            .map_err(|invalid| invalid.at("filter.type"))?,
        tag: shared(filter.tag),
        error_code: shared(filter.error_code),
        ..JobFilter::default()
    })
}

/// Returns at most `limit` matches, newest first, and whether there are more.
async fn find(
    app: &AppState,
    filter: &JobFilter,
    action: BulkAction,
    limit: usize,
) -> Result<(Vec<JobId>, bool), ApiError> {
    let mut matches = Vec::new();
    let mut before: Option<Seq> = None;
    for _ in 0..PAGES_MAX {
        // One row more than the limit shows whether there are more.
        let query = JobQuery { filter: filter.clone(), limit: limit + 1 - matches.len(), before };
        let page = app.call_store(app.store.list(query)).await?;
        matches.extend(page.jobs.iter().filter(|job| is_affected(action, job)).map(|job| job.id));
        if matches.len() > limit {
            matches.truncate(limit);
            return Ok((matches, true));
        }
        match page.next {
            Some(next) => before = Some(next),
            None => return Ok((matches, false)),
        }
    }
    // The scan limit is reached: there may be more.
    Ok((matches, true))
}

/// Returns `false` for a job that was requeued as a clone before: one requeue is enough.
fn is_affected(action: BulkAction, job: &Arc<Job>) -> bool {
    match action {
        BulkAction::Requeue => job.requeued_as.is_none(),
        BulkAction::Cancel | BulkAction::Delete => true,
    }
}

/// Returns how many commands succeeded.
async fn change(app: &AppState, action: BulkAction, jobs: Vec<JobId>) -> Result<u64, ApiError> {
    let command = |id: JobId| match action {
        BulkAction::Requeue => AdminCommand::Requeue { id, how: Requeue { counters: Reset::Zero, run_at: None } },
        BulkAction::Cancel => AdminCommand::Cancel { id, reason: None, force: Force::ByPolicy },
        BulkAction::Delete => AdminCommand::Delete { id },
    };
    let deleted = if action == BulkAction::Delete { jobs.clone() } else { Vec::new() };
    let commands = jobs.into_iter().map(|id| app.call_store(app.store.admin(command(id))));
    let verdicts = stream::iter(commands).buffered(CONCURRENCY);
    let changed = verdicts.try_fold(0, async |changed, verdict| Ok(changed + u64::from(verdict.is_ok()))).await;
    deleted.into_iter().for_each(|id| app.dead_letters.on_delete(id));
    changed
}
