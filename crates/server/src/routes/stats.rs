//! `GET /v1/stats`: counts, rates, and series on request.

use std::collections::HashSet;

use longshore_api::system::{QueueStats, SeriesInfo, Stats};
use longshore_core::id::QueueName;
use longshore_core::refusal::Refusal;
use longshore_core::{Duration, Timestamp};
use longshore_store::QueueStats as QueueReport;

use crate::access::CallerState as State;
use crate::background::series::{COARSE_MS, COARSE_WINDOW_MS, FINE_WINDOW_MS, SeriesAnswer, SeriesSpec};
use crate::background::throughput::QueueThroughput;
use crate::convert::{queue::counts, time};
use crate::state::AppState;
use crate::wire::problem::ApiError;
use crate::wire::query::Query;
use crate::wire::response::{ApiResult, ok};

/// Window of a request that names a step or a queue only.
const WINDOW_DEFAULT: Duration = Duration::from_hours(1);

/// The series that a request asks for.
#[derive(Debug)]
pub(super) struct SeriesRequest {
    pub(super) window: Duration,
    pub(super) step: Duration,
    queue: Option<QueueName>,
}

impl SeriesRequest {
    /// Reads the parameters. Returns `None` without any: then the response has no series.
    fn read(mut query: Query) -> Result<Option<Self>, ApiError> {
        let most = duration(COARSE_WINDOW_MS);
        let window = query.duration("window", most)?;
        let step = query.duration("step", most)?;
        let name = |text: &str| QueueName::new(text).ok();
        let queue = query.parse_with("queue", "must be the name of a queue", name)?;
        query.end()?;
        if window.is_none() && step.is_none() && queue.is_none() {
            return Ok(None);
        }
        let window = window.unwrap_or(WINDOW_DEFAULT);
        let is_short = window <= duration(FINE_WINDOW_MS);
        let step = step.unwrap_or(if is_short { Duration::from_secs(1) } else { duration(COARSE_MS) });
        let request = Self { window, step, queue };
        if window < Duration::from_secs(1) {
            return Err(ApiError::validation("window", "must be 1s to 1d"));
        }
        if request.spec().is_kept() {
            return Ok(Some(request));
        }
        let unit = if is_short { "1s" } else { "30s" };
        Err(ApiError::validation("step", &format!("must be a multiple of {unit}, at most the window of {window}")))
    }

    /// Reads the parameters of types, which have points at 30 s only.
    pub(super) fn read_types(mut query: Query, has_step: bool) -> Result<Self, ApiError> {
        let most = duration(COARSE_WINDOW_MS);
        let window = query.duration("window", most)?.unwrap_or(WINDOW_DEFAULT);
        let step = if has_step { query.duration("step", most)? } else { None };
        query.end()?;
        let least = duration(COARSE_MS);
        if window < least {
            return Err(ApiError::validation("window", "must be 30s to 1d"));
        }
        let request = Self { window, step: step.unwrap_or(least), queue: None };
        if request.spec().is_kept() && request.spec().step_ms % COARSE_MS == 0 {
            return Ok(request);
        }
        let detail = format!("must be a multiple of 30s, at most the window of {window}");
        Err(ApiError::validation("step", &detail))
    }

    pub(super) fn spec(&self) -> SeriesSpec {
        let millis = |length: Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        SeriesSpec { window_ms: millis(self.window), step_ms: millis(self.step) }
    }
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}

/// `GET /v1/stats`
pub(crate) async fn stats(State(app): State<AppState>, query: Query) -> ApiResult {
    let request = SeriesRequest::read(query)?;
    let reports = app.call_store(app.store.queues()).await?;
    let mut stats = present(&app, &reports);
    if let Some(request) = request {
        add_series(&app, &mut stats, &request, &reports)?;
    }
    ok(&stats)
}

/// Returns counts and rates.
fn present(app: &AppState, reports: &[QueueReport]) -> Stats {
    let names: HashSet<&QueueName> = reports.iter().map(|report| &report.queue.name).collect();
    if !app.is_restricted() {
        app.throughput.retain(|name| names.contains(name));
    }
    let throughput = app.throughput.snapshot();
    let QueueThroughput { rates, since_start } =
        if app.is_restricted() { throughput.sum_of(&names) } else { throughput.all };
    let mut totals = QueueStats { rates, since_start, ..QueueStats::default() };
    let mut stats = Stats { now: time(app.now()), totals: QueueStats::default(), queues: [].into(), series: None };
    for report in reports {
        let counts = counts(&report.counts);
        for (state, jobs) in &counts {
            *totals.counts.entry(*state).or_default() += jobs;
        }
        let name = &report.queue.name;
        let of_queue = throughput.queues.get(name).copied().unwrap_or_default();
        let queue_stats = QueueStats { counts, rates: of_queue.rates, since_start: of_queue.since_start, series: None };
        stats.queues.insert(name.to_string(), queue_stats);
    }
    stats.totals = totals;
    stats
}

/// Adds the series. With `queue`, the other queues leave the response.
fn add_series(
    app: &AppState,
    stats: &mut Stats,
    request: &SeriesRequest,
    reports: &[QueueReport],
) -> Result<(), ApiError> {
    let visible: Vec<&QueueName> = reports.iter().map(|report| &report.queue.name).collect();
    let mut shown = visible.clone();
    if let Some(queue) = &request.queue {
        shown.retain(|name| *name == queue);
        if shown.is_empty() {
            return Err(Refusal::QueueNotFound.into());
        }
        stats.queues.retain(|name, _| name == queue.as_str());
    }
    let totals_of = app.is_restricted().then_some(visible.as_slice());
    let SeriesAnswer { since, totals, mut queues } = app.series.read(app.now(), request.spec(), &shown, totals_of);
    stats.totals.series = Some(totals);
    let mut queues_left_off = 0;
    for name in shown {
        let points = queues.remove(name);
        queues_left_off += u64::from(points.is_none());
        if let Some(queue) = stats.queues.get_mut(name.as_str()) {
            queue.series = Some(points.unwrap_or_default());
        }
    }
    let SeriesRequest { window, step, .. } = *request;
    let from = app.now().as_millis() - request.spec().window_ms;
    let deploys = app.workers.deploys().since(Timestamp::from_millis(from), |queue| {
        visible.contains(&queue) && request.queue.as_ref().is_none_or(|name| name == queue)
    });
    stats.series = Some(SeriesInfo { window, step, since: time(since), queues_left_off, deploys });
    Ok(())
}
