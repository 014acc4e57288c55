//! Metrics in the text format of Prometheus: requests, calls of the store, queues.
//!
//! Labels have bounded sets of values: routes, operations, states, and up to 200 queues.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_api::system::ThroughputTotals as Totals;
use longshore_core::state::StateKind;
use longshore_engine::count_of;
use longshore_store::{
    Histogram, HistogramSnapshot, HitCount, Observer, QueueStats, StoreCall, StoreHealth, StoreMetrics, StoreOp,
};
use parking_lot::RwLock;

use crate::net::admission::{Admission, RequestClass};
use crate::routes::system::VERSION;
use crate::state::AppState;

/// Queues with their own series; the others are summed as `_other`.
const QUEUES_MAX: usize = 200;

/// Labels of methods, sorted. Other methods share the last one, which bounds the number of series.
const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT", "other"];

/// Requests of one method and route.
#[derive(Debug)]
struct RouteMetrics {
    duration: Histogram,
    /// By status class, 1xx to 5xx.
    statuses: [AtomicU64; 5],
}

impl Default for RouteMetrics {
    fn default() -> Self {
        Self { duration: Histogram::wait_seconds(), statuses: Default::default() }
    }
}

impl RouteMetrics {
    fn count(&self, status: u16, took: Duration) {
        self.duration.observe_duration(took);
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = self.statuses.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Calls of one operation of the store.
#[derive(Debug)]
struct OperationMetrics {
    duration: Histogram,
    items: AtomicU64,
    refused: AtomicU64,
    errors: AtomicU64,
}

impl Default for OperationMetrics {
    fn default() -> Self {
        let (items, refused, errors) = Default::default();
        Self { duration: Histogram::wait_seconds(), items, refused, errors }
    }
}

#[derive(Debug)]
pub(crate) struct Metrics {
    /// By method, in the order of [`METHODS`], and route.
    routes: [RwLock<HashMap<String, RouteMetrics>>; METHODS.len()],
    store: [OperationMetrics; StoreOp::ALL.len()],
    pub(crate) connections: AtomicU64,
    pub(crate) panics: AtomicU64,
    /// Requests without a valid token, from another host name, or while tokens are unreadable.
    pub(crate) denied: AtomicU64,
    /// Requests that were refused because their token has sent too many.
    pub(crate) rate_limited: AtomicU64,
    /// The load of the store.
    pub(crate) admission: Admission,
}

impl Metrics {
    pub(crate) fn new(admission: Admission) -> Self {
        let (routes, store) = Default::default();
        let (connections, panics, denied, rate_limited) = Default::default();
        Self { routes, store, connections, panics, denied, rate_limited, admission }
    }

    /// Counts a request. `route` is the pattern of the path, never the path itself.
    pub(crate) fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let method = METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len() - 1);
        let Some(routes) = self.routes.get(method) else { return };
        if let Some(metrics) = routes.read().get(route) {
            return metrics.count(status, took);
        }
        routes.write().entry(route.to_owned()).or_default().count(status, took);
    }
}

impl Observer for Metrics {
    fn begin(&self, operation: StoreOp, items: usize) -> u32 {
        self.admission.begin(operation, items)
    }

    fn observe(&self, call: &StoreCall<'_>) {
        self.admission.end(call.load);
        let Some(metrics) = self.store.get(call.operation as usize) else { return };
        if !call.waits {
            metrics.duration.observe_duration(call.took);
        }
        metrics.items.fetch_add(call.items as u64, Ordering::Relaxed);
        metrics.refused.fetch_add(call.refused as u64, Ordering::Relaxed);
        if matches!(call.outcome, Some(Err(_))) {
            metrics.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The text of the response.
struct Exposition(String);

impl Exposition {
    fn push(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        if self.0.write_fmt(line).is_ok() {
            self.0.push('\n');
        }
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        self.push(format_args!("{name}{{{labels}}} {value}"));
    }

    fn unlabelled(&mut self, name: &str, value: impl std::fmt::Display) {
        self.push(format_args!("{name} {value}"));
    }
}

/// Returns all metrics.
pub(crate) fn exposition(app: &AppState, queues: &[QueueStats], health: &StoreHealth, store: &StoreMetrics) -> String {
    let mut text = Exposition(String::with_capacity(16 << 10));
    text.family("longshore_info", "gauge", "Version and store of the server.");
    text.sample("longshore_info", &format!("version=\"{VERSION}\",store=\"{}\"", app.about.kind), 1);
    text.family("longshore_uptime_seconds", "gauge", "Seconds since the server started.");
    text.unlabelled("longshore_uptime_seconds", app.uptime().as_secs());
    text.family("longshore_connections", "gauge", "Open connections.");
    text.unlabelled("longshore_connections", app.metrics.connections.load(Ordering::Relaxed));
    text.family("longshore_event_listeners", "gauge", "Open event streams.");
    text.unlabelled("longshore_event_listeners", app.events.listeners());
    let help = "Event streams that were closed because the client was too slow.";
    text.family("longshore_event_listeners_cut_off_total", "counter", help);
    text.unlabelled("longshore_event_listeners_cut_off_total", app.events.cut_off());
    text.family("longshore_waiting_claims", "gauge", "Claims that wait for jobs.");
    text.unlabelled("longshore_waiting_claims", app.store.parked_claims());
    text.family(
        "longshore_http_request_panics_total",
        "counter",
        "Requests whose handler panicked, which is a defect.",
    );
    text.unlabelled("longshore_http_request_panics_total", app.metrics.panics.load(Ordering::Relaxed));
    text.family(
        "longshore_http_requests_denied_total",
        "counter",
        "Requests that were not admitted: no valid token, or a foreign host name.",
    );
    text.unlabelled("longshore_http_requests_denied_total", app.metrics.denied.load(Ordering::Relaxed));
    write_admission(&mut text, app);
    text.family("longshore_store_poisoned", "gauge", "1 after a failed write: the server must be restarted.");
    text.unlabelled("longshore_store_poisoned", u8::from(store.is_poisoned || app.store_health.has_failed()));
    write_schedules_and_webhooks(&mut text, app);
    write_traces(&mut text, app);
    write_health(&mut text, health);
    write_store_internals(&mut text, store);
    write_queues(&mut text, app, queues);
    write_requests(&mut text, &app.metrics);
    write_store(&mut text, &app.metrics);
    text.0
}

fn write_admission(text: &mut Exposition, app: &AppState) {
    let admission = &app.metrics.admission;
    let help = "Calls that wait for the store; a batch counts as one per 20 items.";
    text.family("longshore_store_calls_in_flight", "gauge", help);
    text.unlabelled("longshore_store_calls_in_flight", admission.load());
    let name = "longshore_http_requests_overload_refused_total";
    text.family(name, "counter", "Requests that were refused because too many calls waited for the store.");
    for class in RequestClass::ALL {
        text.sample(name, &format!("class=\"{}\"", class.as_str()), admission.refused(class));
    }
    let name = "longshore_http_requests_rate_limited_total";
    text.family(name, "counter", "Requests that were refused because their token had sent too many.");
    text.unlabelled(name, app.metrics.rate_limited.load(Ordering::Relaxed));
}

fn write_schedules_and_webhooks(text: &mut Exposition, app: &AppState) {
    text.family("longshore_schedules", "gauge", "Schedules of the store.");
    text.unlabelled("longshore_schedules", app.schedules.count());
    text.family("longshore_schedule_lag_seconds", "gauge", "Seconds by which the next tick is late.");
    text.unlabelled("longshore_schedule_lag_seconds", app.schedules.lag_seconds(app.now()));
    let name = "longshore_schedule_ticks_total";
    text.family(name, "counter", "Ticks that this server has processed, by outcome.");
    for (outcome, ticks) in app.schedules.ticks() {
        text.sample(name, &format!("outcome=\"{outcome}\""), ticks);
    }
    let counters = &app.webhooks.counters;
    let name = "longshore_webhook_attempts_total";
    text.family(name, "counter", "Attempts of deliveries by this server: delivered, to be retried, failed for good.");
    for (result, attempts) in counters.attempts() {
        text.sample(name, &format!("result=\"{result}\""), attempts);
    }
    let help = "Seconds by which the oldest pending delivery is late.";
    text.family("longshore_webhook_lag_seconds", "gauge", help);
    text.unlabelled("longshore_webhook_lag_seconds", counters.lag_seconds());
    let help = "Webhook endpoints that are disabled because their receiver answered 410.";
    text.family("longshore_webhook_endpoints_gone", "gauge", help);
    text.unlabelled("longshore_webhook_endpoints_gone", counters.gone());
}

fn write_traces(text: &mut Exposition, app: &AppState) {
    text.family("longshore_trace_spans_exported_total", "counter", "Spans that a collector has accepted.");
    text.unlabelled("longshore_trace_spans_exported_total", app.tracer.exported());
    let help = "Spans that were lost: the queue was full, or the collector did not accept them.";
    text.family("longshore_trace_spans_dropped_total", "counter", help);
    text.unlabelled("longshore_trace_spans_dropped_total", app.tracer.dropped());
}

/// Leaves out values that the store does not have.
fn write_health(text: &mut Exposition, health: &StoreHealth) {
    text.family("longshore_store_writable", "gauge", "1 while the store accepts new jobs, 0 while it rejects them.");
    text.unlabelled("longshore_store_writable", u8::from(health.writable()));
    if let Some(bytes) = health.reserve_bytes {
        let help = "Bytes that are reserved for a full disk; 0 while the reserve is in use.";
        text.family("longshore_store_reserve_bytes", "gauge", help);
        text.unlabelled("longshore_store_reserve_bytes", bytes);
    }
    if let Some(bytes) = health.free_bytes {
        text.family("longshore_store_free_bytes", "gauge", "Free bytes on the disk of the store.");
        text.unlabelled("longshore_store_free_bytes", bytes);
    }
}

/// Leaves out parts that the store does not have.
fn write_store_internals(text: &mut Exposition, store: &StoreMetrics) {
    let histograms: [(&str, &str, &Option<HistogramSnapshot>); 2] = [
        ("longshore_store_commit_duration_seconds", "Duration of commits.", &store.commit_seconds),
        ("longshore_store_commit_batch_size", "Commands per commit.", &store.batch_commands),
    ];
    for (name, help, histogram) in histograms {
        if let Some(histogram) = histogram {
            write_snapshot(text, name, help, histogram);
        }
    }
    if let Some(bytes) = store.wal_bytes {
        text.family("longshore_store_wal_bytes", "gauge", "Size of the write-ahead log.");
        text.unlabelled("longshore_store_wal_bytes", bytes);
    }
    if let Some(seconds) = store.watermark_age_seconds {
        text.family("longshore_store_watermark_age_seconds", "gauge", "Age of the watermark of commits.");
        text.unlabelled("longshore_store_watermark_age_seconds", seconds);
    }
    let caches: [(&str, &str, Option<HitCount>); 2] = [
        ("longshore_store_cache", "Records by result of the cache lookup.", store.cache),
        ("longshore_store_fast_path", "Transactions by result of the fast path.", store.fast_path),
    ];
    for (name, help, counts) in caches {
        if let Some(HitCount { hits, misses }) = counts {
            let name = format!("{name}_total");
            text.family(&name, "counter", help);
            text.sample(&name, "result=\"hit\"", hits);
            text.sample(&name, "result=\"miss\"", misses);
        }
    }
}

fn write_snapshot(text: &mut Exposition, name: &str, help: &str, histogram: &HistogramSnapshot) {
    text.family(name, "histogram", help);
    write_series(text, name, "", histogram);
}

/// Writes one series of a histogram; `labels` may be empty.
fn write_series(text: &mut Exposition, name: &str, labels: &str, histogram: &HistogramSnapshot) {
    let separator = if labels.is_empty() { "" } else { "," };
    let bucket = format!("{name}_bucket");
    for (bound, count) in &histogram.buckets {
        text.sample(&bucket, &format!("{labels}{separator}le=\"{bound}\""), count);
    }
    text.sample(&bucket, &format!("{labels}{separator}le=\"+Inf\""), histogram.count);
    let mut write_total = |suffix: &str, value: &dyn std::fmt::Display| {
        let name = format!("{name}_{suffix}");
        if labels.is_empty() {
            text.unlabelled(&name, value);
        } else {
            text.sample(&name, labels, value);
        }
    };
    write_total("count", &histogram.count);
    write_total("sum", &histogram.sum);
}

fn write_queues(text: &mut Exposition, app: &AppState, queues: &[QueueStats]) {
    let (listed, others) = queues.split_at(queues.len().min(QUEUES_MAX));
    text.family("longshore_jobs", "gauge", "Jobs by queue and state.");
    for state in StateKind::ALL {
        let labels = |queue: &str| format!("queue=\"{queue}\",state=\"{state}\"");
        for report in listed {
            text.sample("longshore_jobs", &labels(report.queue.name.as_str()), count_of(&report.counts, *state));
        }
        if !others.is_empty() {
            let rest: u64 = others.iter().map(|report| count_of(&report.counts, *state)).sum();
            text.sample("longshore_jobs", &labels("_other"), rest);
        }
    }
    text.family("longshore_oldest_ready_job_age_seconds", "gauge", "Age of the oldest scheduled job of a queue.");
    let now = app.now();
    for report in listed {
        let age = report.oldest_scheduled_at.map_or(0, |at| now.since(at).as_millis() / 1_000);
        text.sample("longshore_oldest_ready_job_age_seconds", &format!("queue=\"{}\"", report.queue.name), age);
    }
    let throughput = app.throughput.snapshot();
    type TotalOf = fn(&Totals) -> u64;
    let counters: [(&str, TotalOf); 4] = [
        ("submitted", |totals| totals.submitted),
        ("claimed", |totals| totals.claimed),
        ("completed", |totals| totals.completed),
        ("failed", |totals| totals.failed),
    ];
    for (event, total) in counters {
        let name = format!("longshore_jobs_{event}_total");
        text.family(&name, "counter", &format!("Jobs {event} since the server started."));
        let mut rest = total(&throughput.all.since_start);
        for report in listed {
            let number = throughput.queues.get(&report.queue.name).map_or(0, |queue| total(&queue.since_start));
            rest = rest.saturating_sub(number);
            text.sample(&name, &format!("queue=\"{}\"", report.queue.name), number);
        }
        text.sample(&name, "queue=\"_other\"", rest);
    }
}

fn write_requests(text: &mut Exposition, metrics: &Metrics) {
    let maps: Vec<_> = METHODS.into_iter().zip(metrics.routes.each_ref().map(|routes| routes.read())).collect();
    let mut routes: Vec<_> = maps
        .iter()
        .flat_map(|(method, routes)| routes.iter().map(move |(route, metrics)| ((*method, route), metrics)))
        .collect();
    routes.sort_unstable_by_key(|(key, _)| *key);
    text.family("longshore_http_requests_total", "counter", "Requests by route and status class.");
    for ((method, route), metrics) in &routes {
        for (class, count) in (1..).zip(&metrics.statuses) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{class}xx\"");
                text.sample("longshore_http_requests_total", &labels, count);
            }
        }
    }
    let name = "longshore_http_request_duration_seconds";
    text.family(name, "histogram", "Duration of requests, including long polls.");
    for ((method, route), metrics) in &routes {
        let labels = format!("method=\"{method}\",route=\"{route}\"");
        write_series(text, name, &labels, &metrics.duration.snapshot());
    }
}

fn write_store(text: &mut Exposition, metrics: &Metrics) {
    let operations = || StoreOp::ALL.iter().zip(&metrics.store);
    let name = "longshore_store_call_duration_seconds";
    text.family(name, "histogram", "Duration of calls of the store, without parked claims.");
    for (operation, metrics) in operations() {
        let labels = format!("operation=\"{}\"", operation.as_str());
        write_series(text, name, &labels, &metrics.duration.snapshot());
    }
    type CounterOf = fn(&OperationMetrics) -> &AtomicU64;
    let counters: [(&str, &str, CounterOf); 3] = [
        ("batch_items", "Items of calls.", |metrics| &metrics.items),
        ("refused", "Items that the rules refused.", |metrics| &metrics.refused),
        ("errors", "Calls that failed.", |metrics| &metrics.errors),
    ];
    for (word, help, counter) in counters {
        let name = format!("longshore_store_{word}_total");
        text.family(&name, "counter", help);
        for (operation, metrics) in operations() {
            let labels = format!("operation=\"{}\"", operation.as_str());
            text.sample(&name, &labels, counter(metrics).load(Ordering::Relaxed));
        }
    }
}
