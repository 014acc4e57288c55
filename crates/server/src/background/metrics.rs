//! Figures for Prometheus: counters and histograms of requests and of the store, and gauges read when somebody looks.
//!
//! Labels come from bounded sets: routes, verbs, states, and at most so many queues.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use longshore_api::system::ThroughputTotals as Totals;
use longshore_core::state::StateKind;
use longshore_engine::count_of;
use longshore_store::{Observer, QueueStats, StoreCall, StoreHealth, StoreOp};

use crate::app::AppState;
use crate::routes::system::info::VERSION;

/// Queues with figures of their own; the others are summed up as `_other`.
const QUEUES_MAX: usize = 200;

/// Upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some((bucket, _)) = self.buckets.iter().zip(BOUNDS).find(|(_, bound)| seconds <= *bound) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn write(&self, text: &mut Text, name: &str, labels: &str) {
        let mut sum = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            sum += bucket.load(Ordering::Relaxed);
            text.line(&format!("{name}_bucket"), &format!("{labels},le=\"{bound}\""), sum);
        }
        let count = self.count.load(Ordering::Relaxed);
        text.line(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), count);
        text.line(&format!("{name}_count"), labels, count);
        text.line(
            &format!("{name}_sum"),
            labels,
            Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64(),
        );
    }
}

/// Of one route and method.
#[derive(Debug, Default)]
struct Route {
    took: Histogram,
    /// By the first digit of the status, from 1 to 5.
    statuses: [AtomicU64; 5],
}

/// Of one verb of the store.
#[derive(Debug, Default)]
struct StoreVerb {
    took: Histogram,
    items: AtomicU64,
    refused: AtomicU64,
    errors: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    routes: RwLock<HashMap<(String, String), Arc<Route>>>,
    store: [StoreVerb; StoreOp::ALL.len()],
    pub(crate) connections: AtomicU64,
    pub(crate) panics: AtomicU64,
}

impl Metrics {
    /// `route`: the pattern of the path, never the path itself.
    pub(crate) fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let key = (method.to_owned(), route.to_owned());
        let known = self.routes.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let figures = known.unwrap_or_else(|| {
            let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(routes.entry(key).or_default())
        });
        figures.took.observe(took);
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = figures.statuses.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Observer for Metrics {
    fn observe(&self, observation: &StoreCall<'_>) {
        let place = StoreOp::ALL.iter().position(|verb| *verb == observation.verb);
        let Some(verb) = place.and_then(|place| self.store.get(place)) else { return };
        if !observation.waits {
            verb.took.observe(observation.took);
        }
        verb.items.fetch_add(observation.items as u64, Ordering::Relaxed);
        verb.refused.fetch_add(observation.refused as u64, Ordering::Relaxed);
        if matches!(observation.outcome, Some(Err(_))) {
            verb.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A page of metrics under construction.
struct Text(String);

impl Text {
    fn push(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        if self.0.write_fmt(line).is_ok() {
            self.0.push('\n');
        }
    }

    fn about(&mut self, name: &str, kind: &str, help: &str) {
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        self.push(format_args!("{name}{{{labels}}} {value}"));
    }

    fn plain(&mut self, name: &str, value: impl std::fmt::Display) {
        self.push(format_args!("{name} {value}"));
    }
}

/// Everything, as text.
pub(crate) fn exposition(app: &AppState, queues: &[QueueStats], health: &StoreHealth) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    text.about("longshore_info", "gauge", "The server.");
    text.line("longshore_info", &format!("version=\"{VERSION}\",store=\"{}\"", app.about.kind), 1);
    text.about("longshore_uptime_seconds", "gauge", "Since the server was started.");
    text.plain("longshore_uptime_seconds", app.uptime().as_secs());
    text.about("longshore_connections", "gauge", "Open connections.");
    text.plain("longshore_connections", app.metrics.connections.load(Ordering::Relaxed));
    text.about("longshore_waiting_claims", "gauge", "Claims that wait for work.");
    text.plain("longshore_waiting_claims", app.store.parked_claims());
    text.about("longshore_request_panics_total", "counter", "Requests that ended in a panic: defects.");
    text.plain("longshore_request_panics_total", app.metrics.panics.load(Ordering::Relaxed));
    write_health(&mut text, health);
    write_queues(&mut text, app, queues);
    write_requests(&mut text, &app.metrics);
    write_store(&mut text, &app.metrics);
    text.0
}

/// What the store does not know is left out.
fn write_health(text: &mut Text, health: &StoreHealth) {
    text.about("longshore_store_writable", "gauge", "1 while the store takes new jobs, 0 while it refuses them.");
    text.plain("longshore_store_writable", u8::from(health.writable()));
    if let Some(bytes) = health.reserve_bytes {
        let help = "Bytes that are set aside for a full disk; 0 while they are in use.";
        text.about("longshore_store_reserve_bytes", "gauge", help);
        text.plain("longshore_store_reserve_bytes", bytes);
    }
    if let Some(bytes) = health.free_bytes {
        text.about("longshore_store_free_bytes", "gauge", "Bytes that are free on the disk of the store.");
        text.plain("longshore_store_free_bytes", bytes);
    }
}

fn write_queues(text: &mut Text, app: &AppState, queues: &[QueueStats]) {
    let (apart, others) = queues.split_at(queues.len().min(QUEUES_MAX));
    text.about("longshore_jobs", "gauge", "Jobs by queue and state.");
    for state in StateKind::ALL {
        let labels = |queue: &str| format!("queue=\"{queue}\",state=\"{state}\"");
        for report in apart {
            text.line("longshore_jobs", &labels(report.queue.name.as_str()), count_of(&report.counts, *state));
        }
        if !others.is_empty() {
            let rest: u64 = others.iter().map(|report| count_of(&report.counts, *state)).sum();
            text.line("longshore_jobs", &labels("_other"), rest);
        }
    }
    text.about("longshore_oldest_scheduled_age_seconds", "gauge", "How long the first in line has stood there.");
    let now = app.now();
    for report in apart {
        let age = report.oldest_scheduled_at.map_or(0, |at| now.since(at).as_millis() / 1_000);
        text.line("longshore_oldest_scheduled_age_seconds", &format!("queue=\"{}\"", report.queue.name), age);
    }
    let figures = app.tally.figures();
    type Read = fn(&Totals) -> u64;
    let counters: [(&str, Read); 4] = [
        ("submitted", |totals| totals.submitted),
        ("claimed", |totals| totals.claimed),
        ("completed", |totals| totals.completed),
        ("failed", |totals| totals.failed),
    ];
    for (word, read) in counters {
        let name = format!("longshore_jobs_{word}_total");
        text.about(&name, "counter", &format!("Jobs {word} since the server was started."));
        let mut rest = read(&figures.all.since_start);
        for report in apart {
            let number = figures.queues.get(&report.queue.name).map_or(0, |figures| read(&figures.since_start));
            rest = rest.saturating_sub(number);
            text.line(&name, &format!("queue=\"{}\"", report.queue.name), number);
        }
        text.line(&name, "queue=\"_other\"", rest);
    }
}

fn write_requests(text: &mut Text, metrics: &Metrics) {
    let routes = metrics.routes.read().unwrap_or_else(PoisonError::into_inner);
    let mut routes: Vec<_> = routes.iter().collect();
    routes.sort_unstable_by_key(|(key, _)| *key);
    text.about("longshore_http_requests_total", "counter", "Requests by route and class of status.");
    for ((method, route), figures) in &routes {
        for (class, count) in (1..).zip(&figures.statuses) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{class}xx\"");
                text.line("longshore_http_requests_total", &labels, count);
            }
        }
    }
    text.about("longshore_http_request_seconds", "histogram", "How long requests took, waits included.");
    for ((method, route), figures) in &routes {
        figures.took.write(text, "longshore_http_request_seconds", &format!("method=\"{method}\",route=\"{route}\""));
    }
}

fn write_store(text: &mut Text, metrics: &Metrics) {
    let verbs = || StoreOp::ALL.iter().zip(&metrics.store);
    text.about("longshore_store_seconds", "histogram", "How long the store took.");
    for (verb, figures) in verbs() {
        figures.took.write(text, "longshore_store_seconds", &format!("verb=\"{}\"", verb.as_str()));
    }
    type Read = fn(&StoreVerb) -> &AtomicU64;
    let counters: [(&str, &str, Read); 3] = [
        ("items", "Members of calls.", |verb| &verb.items),
        ("refused", "Members that the rules refused.", |verb| &verb.refused),
        ("errors", "Calls that the store failed at.", |verb| &verb.errors),
    ];
    for (word, help, read) in counters {
        let name = format!("longshore_store_{word}_total");
        text.about(&name, "counter", help);
        for (verb, figures) in verbs() {
            text.line(&name, &format!("verb=\"{}\"", verb.as_str()), read(figures).load(Ordering::Relaxed));
        }
    }
}
