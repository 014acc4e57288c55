//! `GET /v1/attention`: what operators should look at. The rules are in `longshore-core`; this file
//! collects their facts, from counters and from memory.

use std::collections::BTreeMap;

use longshore_api::attention::{Attention, AttentionAction, AttentionItem};
use longshore_api::enums::State;
use longshore_core::attention::{
    BURST_WINDOW, Finding, FindingFacts, GROWTH_WINDOW, QueueFacts, WebhookFacts, check_clock, check_disk, check_queue,
    check_schedule, check_webhook, sort,
};
use longshore_core::id::{JobType, QueueName};
use longshore_core::{Duration, Timestamp};
use longshore_engine::count_of;
use longshore_store::{Clock as _, JobFilter, JobQuery, QueueStats, SeenWorker, SystemClock};
use serde_json::{Value, json};

use crate::access::CallerState;
use crate::background::fleet;
use crate::convert::{time, times};
use crate::state::AppState;
use crate::webhooks::endpoint::{self, Endpoint};
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, ok};

/// Types whose ready jobs one request looks for. The next request looks for others.
const TYPE_LOOKS_MAX: usize = 50;

/// `GET /v1/attention`
pub(crate) async fn attention(CallerState(app): CallerState<AppState>, _: NoQuery) -> ApiResult {
    let now = app.now();
    let mut findings = of_queues(&app, now).await?;
    // Schedules, endpoints, disk and clock belong to the whole server.
    if !app.is_restricted() {
        let schedules = app.schedules.facts().into_iter();
        findings.extend(schedules.filter_map(|facts| check_schedule(&facts, now)));
        findings.extend(of_webhooks(&app).await?);
        let health = super::system::store_health(&app).await;
        findings.extend(check_disk(health.free_bytes, health.reserve_bytes, health.refusing));
        if app.virtual_time.is_none() {
            findings.extend(check_clock(SystemClock::new().now(), app.now()));
        }
    }
    sort(&mut findings);
    ok(&Attention { items: findings.into_iter().map(to_wire).collect() })
}

async fn of_queues(app: &AppState, now: Timestamp) -> Result<Vec<Finding>, ApiError> {
    let reports = app.call_store(app.store.queues()).await?;
    let elsewhere = app.call_store(Box::pin(fleet::recent_elsewhere(app))).await?;
    let (mut findings, mut looks) = (Vec::new(), TYPE_LOOKS_MAX);
    for report in &reports {
        let mut facts = queue_facts(app, report, &elsewhere, now);
        if facts.is_served && !facts.paused && facts.ready > 0 {
            facts.unserved_types = unserved_types(app, &facts.queue, &elsewhere, &mut looks).await?;
        }
        findings.extend(check_queue(&facts, now));
    }
    Ok(findings)
}

fn queue_facts(app: &AppState, report: &QueueStats, elsewhere: &[SeenWorker], now: Timestamp) -> QueueFacts {
    let QueueStats { queue, counts, oldest_scheduled_at } = report;
    let millis = |length: Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    let dead_letters = count_of(counts, State::DeadLetter);
    let recent = app.series.recent(now, &queue.name, millis(BURST_WINDOW), millis(GROWTH_WINDOW));
    let is_served =
        app.workers.is_served(&queue.name) || elsewhere.iter().any(|worker| fleet::serves(worker, &queue.name, None));
    let dead_letters_before = recent.map_or(dead_letters, |recent| recent.dead_letters_before);
    let recent = recent.unwrap_or_default();
    QueueFacts {
        queue: queue.name.clone(),
        paused: queue.paused,
        ready: count_of(counts, State::Scheduled),
        oldest_scheduled_at: *oldest_scheduled_at,
        wait_target: queue.admission.wait_target,
        is_served,
        unserved_types: Vec::new(),
        last_claim_at: app.workers.last_claim_at(&queue.name),
        dead_letters,
        dead_letters_before,
        growing_since: recent.growing_since,
        failed: recent.failed,
        completed: recent.completed,
        failing_since: recent.failing_since,
    }
}

/// Returns the types with a ready job that no worker claims from the queue.
///
/// Each type without a claim lately costs one look for one job, and `looks` bounds them.
async fn unserved_types(
    app: &AppState,
    queue: &QueueName,
    elsewhere: &[SeenWorker],
    looks: &mut usize,
) -> Result<Vec<JobType>, ApiError> {
    let mut found = Vec::new();
    for job_type in app.series.ready_types(queue) {
        let is_served = app.workers.has_recent_claims(queue, &job_type)
            || elsewhere.iter().any(|worker| fleet::serves(worker, queue, Some(&job_type)));
        if is_served || *looks == 0 {
            continue;
        }
        *looks -= 1;
        let filter = JobFilter {
            queue: Some(queue.clone()),
            job_type: Some(job_type.clone()),
            states: State::Scheduled.into(),
            ..JobFilter::default()
        };
        let page = app.call_store(app.store.list(JobQuery { filter, limit: 1, before: None })).await?;
        if !page.jobs.is_empty() {
            found.push(job_type);
        } else if page.next.is_none() {
            app.series.remove_ready_type(queue, &job_type);
        }
    }
    found.sort();
    Ok(found)
}

async fn of_webhooks(app: &AppState) -> Result<Vec<Finding>, ApiError> {
    let records = app.call_store(Box::pin(endpoint::read_all(&*app.store))).await?;
    let endpoints = records.iter().filter_map(Endpoint::of_record);
    let facts = endpoints.map(|endpoint| {
        let streak = app.webhooks.streak(&endpoint.name).filter(|_| endpoint.enabled);
        WebhookFacts {
            webhook: endpoint.name.clone(),
            disabled: endpoint.disabled_reason,
            failures: streak.as_ref().map_or(0, |streak| streak.failures),
            failing_since: streak.as_ref().map(|streak| streak.since),
            last_error: streak.and_then(|streak| streak.last_error),
        }
    });
    Ok(facts.filter_map(|facts| check_webhook(&facts)).collect())
}

fn to_wire(finding: Finding) -> AttentionItem {
    let Finding { severity, since, queue, facts } = finding;
    let queue = queue.map(|queue| queue.to_string());
    let job_type = match &facts {
        FindingFacts::NoWorker { job_type, .. } => job_type.as_ref().map(ToString::to_string),
        FindingFacts::OldestOverTarget { .. }
        | FindingFacts::DeadLettersGrowing { .. }
        | FindingFacts::PausedWithWork { .. }
        | FindingFacts::ScheduleMissed { .. }
        | FindingFacts::DiskLow { .. }
        | FindingFacts::NodeBehind { .. }
        | FindingFacts::ErrorBurst { .. }
        | FindingFacts::WebhookFailing { .. } => None,
    };
    let action = action(&facts, queue.as_deref());
    AttentionItem { code: facts.code(), severity, since: times(since), queue, job_type, facts: to_facts(facts), action }
}

fn post(label: &str, path: String, body: Option<Value>) -> AttentionAction {
    AttentionAction { label: label.to_owned(), method: "POST".to_owned(), path, body }
}

/// Returns the request that helps. Names need no escapes in a path: they are checked.
fn action(facts: &FindingFacts, queue: Option<&str>) -> Option<AttentionAction> {
    match facts {
        FindingFacts::PausedWithWork { .. } => {
            Some(post("resume the queue", format!("/v1/queues/{}/resume", queue?), Some(json!({}))))
        }
        FindingFacts::ScheduleMissed { schedule, .. } => {
            Some(post("submit its job now", format!("/v1/schedules/{schedule}/trigger"), None))
        }
        FindingFacts::WebhookFailing { webhook, disabled: None, .. } => {
            Some(post("send a test", format!("/v1/webhooks/{webhook}/test"), None))
        }
        FindingFacts::WebhookFailing { .. }
        | FindingFacts::NoWorker { .. }
        | FindingFacts::OldestOverTarget { .. }
        | FindingFacts::DeadLettersGrowing { .. }
        | FindingFacts::DiskLow { .. }
        | FindingFacts::NodeBehind { .. }
        | FindingFacts::ErrorBurst { .. } => None,
    }
}

fn to_facts(facts: FindingFacts) -> BTreeMap<String, Value> {
    let facts = match facts {
        FindingFacts::NoWorker { ready, oldest_scheduled_at, last_seen_at, job_type: _ } => {
            let (oldest_scheduled_at, last_seen_at) = (times(oldest_scheduled_at), times(last_seen_at));
            json!({"ready": ready, "oldest_scheduled_at": oldest_scheduled_at, "last_seen_at": last_seen_at})
        }
        FindingFacts::OldestOverTarget { oldest_scheduled_at, wait_target, age, ready } => json!({
            "oldest_scheduled_at": time(oldest_scheduled_at), "wait_target": wait_target, "age": age, "ready": ready,
        }),
        FindingFacts::DeadLettersGrowing { count, growth } => {
            json!({"count": count, "growth": growth, "window": GROWTH_WINDOW})
        }
        FindingFacts::PausedWithWork { waiting, oldest_scheduled_at } => {
            json!({"waiting": waiting, "oldest_scheduled_at": times(oldest_scheduled_at)})
        }
        FindingFacts::ScheduleMissed { schedule, due_at, outcome, detail } => json!({
            "schedule": schedule.as_str(),
            "due_at": time(due_at),
            "outcome": outcome.map_or("overdue", |outcome| outcome.as_str()),
            "detail": detail.as_deref(),
        }),
        FindingFacts::DiskLow { free_bytes, reserve_bytes, refusing } => {
            json!({"free_bytes": free_bytes, "reserve_bytes": reserve_bytes, "refusing": refusing})
        }
        FindingFacts::NodeBehind { offset, is_ahead } => {
            json!({"node": "this server", "kind": "clock", "behind": offset, "is_ahead": is_ahead})
        }
        FindingFacts::ErrorBurst { failed, completed } => {
            let share = share(failed, completed);
            json!({"failed": failed, "completed": completed, "share": share, "window": BURST_WINDOW})
        }
        FindingFacts::WebhookFailing { webhook, failures, last_error, disabled } => json!({
            "webhook": &*webhook, "failures": failures, "last_error": last_error.as_deref(), "disabled": disabled,
        }),
    };
    match facts {
        Value::Object(fields) => fields.into_iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => BTreeMap::new(),
    }
}

/// Returns the failures as a share of all ended attempts, from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "a share of a few minutes")]
fn share(failed: u64, completed: u64) -> f64 {
    let all = failed.saturating_add(completed).max(1);
    (failed as f64 / all as f64 * 1_000.0).round() / 1_000.0
}
