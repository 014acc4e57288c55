//! `GET /v1/jobs/{id}/why`: the reasons why a job does not run.

use longshore_api::admin::Requeue as RequeueBody;
use longshore_api::system::{Reason, RequeueAction, Why};
use longshore_core::Timestamp;
use longshore_core::job::Job;
use longshore_core::policy::Reclaim;
use longshore_core::requeue::{self, Requeue, Reset};
use longshore_core::state::State as JobState;
use longshore_store::{JobRef, QueuePosition, QueueStats};

use super::get::find;
use crate::access::CallerState as State;
use crate::background::fleet;
use crate::convert::job::error;
use crate::convert::why::{JobFacts, explain, summary};
use crate::convert::{time, times};
use crate::state::AppState;
use crate::wire::path::JobPath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, ok};

pub(crate) async fn why(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery) -> ApiResult {
    let job = find(&app, id).await?;
    let queue = app.call_store(app.store.queue(job.queue.clone())).await?;
    let ahead = count_ahead(&app, &job, queue.as_ref()).await?;
    let paused = queue.as_ref().is_some_and(|report| report.queue.paused);
    let is_waiting = !job.state.terminal() && job.state.lease().is_none();
    let mut reasons = Vec::new();
    if paused && is_waiting {
        reasons.push(Reason::QueuePaused { queue: job.queue.to_string() });
    }
    reasons.extend(own_reasons(&job));
    reasons.extend(lifetime(&job));
    if let Some(ahead) = ahead.filter(|ahead| *ahead > 0) {
        reasons.push(Reason::Behind { ahead });
    }
    if ahead.is_some() && !is_served(&app, &job).await? {
        let last_seen_at = times(app.workers.last_claim_at(&job.queue));
        let types = vec![job.job_type.to_string()];
        reasons.push(Reason::NoWorker { queue: job.queue.to_string(), last_seen_at, types });
    }
    let runnable = !paused && queue.is_some() && is_claimable(&job, app.now());
    let facts =
        JobFacts { state: job.kind(), runnable, ahead, requeued_as: job.requeued_as, error: job.error.as_deref() };
    ok(&Why {
        state: job.kind(),
        runnable,
        summary: summary(&facts, &reasons),
        reasons: reasons.into_iter().map(|reason| explain(reason, job.kind())).collect(),
        ahead,
        error: job.error.as_ref().map(error),
        action: requeue_action(&app, &job, queue.as_ref()).await?,
        requeued_as: job.requeued_as.map(|clone| clone.to_string()),
    })
}

/// Whether a worker of any server claims jobs of this type from the queue.
async fn is_served(app: &AppState, job: &Job) -> Result<bool, ApiError> {
    if app.workers.has_recent_claims(&job.queue, &job.job_type) {
        return Ok(true);
    }
    app.call_store(Box::pin(fleet::is_served_elsewhere(app, &job.queue, &job.job_type))).await
}

/// Returns the requeue that lets an ended job run again.
///
/// A job that ended because of a dependency is revived by requeuing that dependency.
async fn requeue_action(
    app: &AppState,
    job: &Job,
    queue: Option<&QueueStats>,
) -> Result<Option<RequeueAction>, ApiError> {
    if !can_requeue(job, queue) {
        return Ok(None);
    }
    let Some(end) = job.dependencies.ended_by else { return Ok(Some(action(job, "requeue"))) };
    let jobs = app.call_store(app.store.get(vec![JobRef::Id(end.dependency)])).await?;
    let Some(dependency) = jobs.into_iter().next().flatten() else { return Ok(None) };
    // A dependency that runs again as a clone, or has completed since, does not block the job.
    let blocks = dependency.state.terminal() && !matches!(dependency.state, JobState::Completed { .. });
    if dependency.requeued_as.is_some() || !blocks {
        return Ok(Some(action(job, "requeue")));
    }
    let queue = app.call_store(app.store.queue(dependency.queue.clone())).await?;
    Ok(can_requeue(&dependency, queue.as_ref()).then(|| action(&dependency, "requeue the dependency")))
}

fn can_requeue(job: &Job, queue: Option<&QueueStats>) -> bool {
    let with_reset = Requeue { counters: Reset::Zero, run_at: None };
    requeue::check(job, &with_reset, queue.map(|report| &report.queue.admission)).is_ok()
}

fn action(job: &Job, label: &str) -> RequeueAction {
    RequeueAction {
        label: label.to_owned(),
        method: "POST".to_owned(),
        path: format!("/v1/jobs/{}/requeue", job.id),
        body: RequeueBody::default(),
        job: job.id.to_string(),
    }
}

/// Returns the reasons that follow from the job's own state.
fn own_reasons(job: &Job) -> Vec<Reason> {
    match &job.state {
        JobState::Pending { held, run_at } => {
            let mut reasons = Vec::new();
            if *held {
                reasons.push(Reason::Held);
            }
            if !job.dependencies.met() {
                reasons.push(waiting_on(job));
            }
            reasons.extend(run_at.map(|at| Reason::DelayedUntil { at: time(at) }));
            reasons
        }
        JobState::Delayed { until } => vec![Reason::DelayedUntil { at: time(*until) }],
        JobState::Retrying { until } => {
            vec![Reason::BackoffUntil { at: time(*until), failures: job.counters.failures }]
        }
        JobState::Running(lease) => vec![Reason::Running {
            worker: lease.worker.as_ref().map(ToString::to_string),
            started_at: times(job.started_at),
            expires_at: times(lease.expires_at),
        }],
        JobState::Scheduled { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::DeadLetter { .. }
        | JobState::Cancelled { .. } => Vec::new(),
    }
}

fn waiting_on(job: &Job) -> Reason {
    let dependencies = &job.dependencies;
    let after = dependencies.after.iter().filter(|after| !after.met).map(|after| after.id.to_string()).collect();
    let any = dependencies.after_any.iter().filter(|_| !dependencies.any_satisfied).map(ToString::to_string).collect();
    Reason::WaitingOn { count: dependencies.waiting_on(), after, after_any: any }
}

/// Returns a reason if the lifetime ended the job, or will end it before its run time.
fn lifetime(job: &Job) -> Option<Reason> {
    let end = job.lifetime_ends_at?;
    let has_expired = matches!(job.state, JobState::DeadLetter { .. })
        && job.error.as_ref().is_some_and(|error| error.code.as_deref() == Some("lifetime"));
    let runs_too_late = job.state.run_at().is_some_and(|run_at| run_at >= end);
    (has_expired || runs_too_late).then(|| Reason::Lifetime { at: time(end) })
}

/// Returns the number of jobs before this one; `None` for a job that is not scheduled.
async fn count_ahead(app: &AppState, job: &Job, queue: Option<&QueueStats>) -> Result<Option<u64>, ApiError> {
    let (JobState::Scheduled { position }, Some(report)) = (&job.state, queue) else { return Ok(None) };
    let priority = report.queue.admission.priority_order.then(|| job.effective_priority());
    let position = QueuePosition { queue: job.queue.clone(), position: *position, priority };
    Ok(Some(app.call_store(app.store.count_ahead(position)).await?))
}

/// Whether the next claim may lease the job: scheduled, or expired under lazy reclaim.
fn is_claimable(job: &Job, now: Timestamp) -> bool {
    match &job.state {
        JobState::Scheduled { .. } => true,
        JobState::Running(lease) => lease.expired(now) && job.policy.reclaim == Reclaim::Lazy,
        JobState::Pending { .. }
        | JobState::Delayed { .. }
        | JobState::Retrying { .. }
        | JobState::Completed { .. }
        | JobState::Failed { .. }
        | JobState::DeadLetter { .. }
        | JobState::Cancelled { .. } => false,
    }
}
