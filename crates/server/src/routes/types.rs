//! `/v1/types`: figures of job types.

use std::collections::HashMap;

use axum::extract::Path;
use longshore_api::job_type::{JobTypeDetail, JobTypeError, JobTypes};
use longshore_api::system::Worker;
use longshore_core::Timestamp;
use longshore_core::id::{JobType, QueueName};
use longshore_core::state::StateKind;
use longshore_store::{JobFilter, JobQuery};

use super::stats::SeriesRequest;
use crate::access::CallerState as State;
use crate::background::series::TypeSums;
use crate::background::{fleet, worker_check};
use crate::convert::job::error;
use crate::convert::time;
use crate::state::AppState;
use crate::wire::problem::ApiError;
use crate::wire::query::Query;
use crate::wire::response::{ApiResult, ok};

/// Jobs whose errors are counted.
const ERRORS_OF: usize = 200;
/// Codes of a response.
const CODES_MAX: usize = 20;
/// Workers of a response.
const WORKERS_MAX: usize = 200;

/// `GET /v1/types`: the types with an event in the window.
pub(crate) async fn list(State(app): State<AppState>, query: Query) -> ApiResult {
    let request = SeriesRequest::read_types(query, false)?;
    let answer = app.series.types(app.now(), request.spec().window_ms, |queue| app.can_see(queue));
    let mut types: Vec<_> = answer.types.iter().map(|(job_type, sums)| sums.to_wire(job_type)).collect();
    types.sort_by_key(|own| std::cmp::Reverse(own.completed + own.failed));
    ok(&JobTypes { types, window: request.window, since: time(answer.since) })
}

/// `GET /v1/types/{type}`: one type with its series, errors, workers and new versions.
pub(crate) async fn get(State(app): State<AppState>, Path(name): Path<String>, query: Query) -> ApiResult {
    let job_type = JobType::new(&name)?;
    let request = SeriesRequest::read_types(query, true)?;
    let (now, spec) = (app.now(), request.spec());
    let admits = |queue: &QueueName| app.can_see(queue);
    let mut answer = app.series.types(now, spec.window_ms, admits);
    let sums = answer.types.remove(&job_type).unwrap_or_default();
    let (errors, errors_of) = errors(&app, &job_type).await?;
    let workers = workers_of(&app, &job_type, &sums).await?;
    let from = Timestamp::from_millis(now.as_millis() - spec.window_ms);
    let detail = JobTypeDetail {
        stats: sums.to_wire(&job_type),
        series: app.series.points_of_type(now, spec, &job_type, admits),
        errors,
        errors_of,
        workers,
        deploys: app.workers.deploys().since(from, |queue| sums.queues.contains(queue)),
        window: request.window,
        step: request.step,
        since: time(answer.since),
        now: time(now),
    };
    ok(&detail)
}

/// Counts the error codes of the newest jobs with a failure. The work is that of one page of jobs.
async fn errors(app: &AppState, job_type: &JobType) -> Result<(Vec<JobTypeError>, u64), ApiError> {
    let states = [StateKind::Retrying, StateKind::Failed, StateKind::DeadLetter].into_iter().collect();
    let filter = JobFilter { job_type: Some(job_type.clone()), states, ..JobFilter::default() };
    let page = app.call_store(app.store.list(JobQuery { filter, limit: ERRORS_OF, before: None })).await?;
    let mut codes: HashMap<Option<String>, JobTypeError> = HashMap::new();
    let mut errors_of = 0;
    for job in &page.jobs {
        let Some(view) = job.error.as_ref().map(error) else { continue };
        errors_of += 1;
        let example = job.id.to_string();
        let new = JobTypeError { error: view.clone(), count: 0, example: example.clone() };
        let own = codes.entry(view.code.clone()).or_insert(new);
        own.count += 1;
        if view.at > own.error.at {
            (own.error, own.example) = (view, example);
        }
    }
    let mut errors: Vec<JobTypeError> = codes.into_values().collect();
    errors.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.error.code.cmp(&b.error.code)));
    errors.truncate(CODES_MAX);
    Ok((errors, errors_of))
}

/// Returns the workers that take the type from one of its queues.
async fn workers_of(app: &AppState, job_type: &JobType, sums: &TypeSums) -> Result<Vec<Worker>, ApiError> {
    worker_check::check_now(app).await;
    let mut workers = app.call_store(Box::pin(fleet::workers(app))).await?;
    for worker in &mut workers {
        worker.queues.retain(|queue| QueueName::new(queue).is_ok_and(|queue| sums.queues.contains(&queue)));
    }
    let takes = |types: &[String]| types.is_empty() || types.iter().any(|own| own == job_type.as_str());
    workers.retain(|worker| !worker.queues.is_empty() && takes(&worker.types));
    workers.truncate(WORKERS_MAX);
    Ok(workers)
}
