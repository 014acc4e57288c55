//! The bounded queue of spans, and the task that sends them.
//!
//! A request or a commit only adds to the queue. A full queue drops the span and counts it: traces
//! never delay a job.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_core::Timestamp;
use longshore_core::id::JobId;
use longshore_core::state::StateKind;
use longshore_engine::{Effect, ParsedSubmission, SubmitRequest, Submitted};
use longshore_store::{Clock, JobRef, SystemClock};
use longshore_webhooks::client::{SystemDialer, WebhookClient};
use longshore_webhooks::guard::AddressGuard;
use longshore_webhooks::outcome::AttemptResult;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::config::OtlpConfig;
use super::span::{self, Span, SubmittedJob, export_body};
use crate::state::AppState;

/// Pauses before an export is tried again; then its spans are dropped.
const RETRY_PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// Longest pause that a collector can request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// Time for the last export of a server that stops.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(800);
/// Jobs that are read at once.
const JOBS_AT_ONCE: usize = 64;

/// What the queue holds.
#[derive(Debug)]
enum TraceItem {
    Submission(Box<Span>),
    /// An attempt of this job has ended then. Its span is made from the record.
    AttemptEnd {
        id: JobId,
        at: Timestamp,
    },
}

/// Collects spans. Without a configuration it does nothing.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    active: Option<ActiveTracer>,
    exported: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct ActiveTracer {
    config: OtlpConfig,
    sender: mpsc::Sender<TraceItem>,
    /// Taken by the task that exports.
    receiver: Mutex<Option<mpsc::Receiver<TraceItem>>>,
}

/// The jobs of a submission, remembered until their ids are known.
#[derive(Debug)]
pub(crate) struct SubmissionTrace {
    start: Timestamp,
    jobs: Vec<Option<TracedJob>>,
}

#[derive(Debug)]
struct TracedJob {
    queue: longshore_core::id::QueueName,
    job_type: longshore_core::id::JobType,
    parent: Option<longshore_core::trace_context::TraceParent>,
}

impl Tracer {
    pub(crate) fn new(config: Option<OtlpConfig>) -> Self {
        let active = config.map(|config| {
            let (sender, receiver) = mpsc::channel(config.queue_max);
            ActiveTracer { config, sender, receiver: Mutex::new(Some(receiver)) }
        });
        Self { active, ..Self::default() }
    }

    pub(crate) fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Remembers what a submission is about. `None` without a configuration.
    pub(crate) fn begin_submission(&self, request: &SubmitRequest, start: Timestamp) -> Option<SubmissionTrace> {
        self.active.as_ref()?;
        let traced = |member: &ParsedSubmission| {
            let submission = member.as_ref().ok()?;
            Some(TracedJob {
                queue: submission.queue.clone(),
                job_type: submission.job.job_type.clone(),
                parent: submission.job.traceparent.as_deref().copied(),
            })
        };
        Some(SubmissionTrace {
            start,
            jobs: request.batch.iter().chain(request.finally.as_deref()).map(traced).collect(),
        })
    }

    /// Adds the spans of the jobs that were created.
    pub(crate) fn end_submission(&self, trace: &SubmissionTrace, submitted: &[Submitted], end: Timestamp) {
        let Some(active) = &self.active else { return };
        for (job, submitted) in trace.jobs.iter().zip(submitted).filter(|(_, submitted)| !submitted.duplicate) {
            let Some(job) = job else { continue };
            let TracedJob { queue, job_type, parent } = job;
            let job = SubmittedJob { id: submitted.id, queue, job_type, parent: parent.as_ref() };
            if let Some(span) = span::of_submission(job, &active.config.sampler, (trace.start, end)) {
                self.add(active, TraceItem::Submission(Box::new(span)));
            }
        }
    }

    /// Adds the attempts that a commit of this server has ended.
    pub(crate) fn on_effects(&self, effects: &[Effect]) {
        let Some(active) = &self.active else { return };
        for effect in effects {
            match effect {
                Effect::Moved { id, step, .. } if step.from == Some(StateKind::Running) => {
                    self.add(active, TraceItem::AttemptEnd { id: *id, at: step.at });
                }
                Effect::Moved { .. } | Effect::Claimable(_) | Effect::Queue { .. } | Effect::Schedule { .. } => {}
            }
        }
    }

    fn add(&self, active: &ActiveTracer, item: TraceItem) {
        if active.sender.try_send(item).is_err() {
            self.count_dropped(1);
        }
    }

    fn count_dropped(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

/// Exports spans until the server has drained, and what is in the queue then.
pub(crate) async fn run(app: AppState) {
    let Some(active) = &app.tracer.active else { return };
    let Some(mut queue) = active.receiver.lock().take() else { return };
    let everywhere = ["0.0.0.0/0", "::/0"].iter().filter_map(|network| network.parse().ok()).collect();
    let client = match WebhookClient::new(SystemDialer, AddressGuard::new(everywhere)) {
        // The operator has configured the address: no network is closed.
        Ok(client) => client.with_timeout(active.config.timeout),
        Err(error) => return tracing::error!(%error, "TLS cannot be set up: no traces are exported"),
    };
    tracing::info!("traces are exported");
    loop {
        let mut items = Vec::new();
        let is_open = tokio::select! {
            () = app.drained.cancelled() => false,
            () = collect(&mut queue, &mut items, &active.config) => true,
        };
        if !is_open {
            break flush(&app, active, &client, &mut queue, items).await;
        }
        let spans = to_spans(&app, &active.config, items).await;
        tokio::select! {
            () = app.drained.cancelled() => {
                // One more try, without pauses.
                let sent = timeout(FLUSH_TIMEOUT, send(&app, active, &client, &spans)).await;
                if sent.is_err() {
                    app.tracer.count_dropped(spans.len());
                }
                break;
            }
            () = export(&app, active, &client, &spans) => {}
        }
    }
}

/// Waits for a batch: full, or as old as the configuration allows.
async fn collect(queue: &mut mpsc::Receiver<TraceItem>, items: &mut Vec<TraceItem>, config: &OtlpConfig) {
    let Some(first) = queue.recv().await else { return std::future::pending().await };
    items.push(first);
    let fill = async {
        while items.len() < config.batch_max {
            let room = config.batch_max - items.len();
            if queue.recv_many(items, room).await == 0 {
                break;
            }
        }
    };
    drop(timeout(config.delay, fill).await);
}

async fn flush(
    app: &AppState,
    active: &ActiveTracer,
    client: &WebhookClient<SystemDialer>,
    queue: &mut mpsc::Receiver<TraceItem>,
    mut items: Vec<TraceItem>,
) {
    while let Ok(item) = queue.try_recv() {
        items.push(item);
    }
    let count = items.len();
    let flushed = async {
        let spans = to_spans(app, &active.config, items).await;
        send(app, active, client, &spans).await;
    };
    if count > 0 && timeout(FLUSH_TIMEOUT, flushed).await.is_err() {
        app.tracer.count_dropped(count);
    }
}

/// Makes the spans. Reads the records of the jobs whose attempts have ended.
async fn to_spans(app: &AppState, config: &OtlpConfig, items: Vec<TraceItem>) -> Vec<Span> {
    let (mut spans, mut ends) = (Vec::with_capacity(items.len()), Vec::new());
    for item in items {
        match item {
            TraceItem::Submission(span) => spans.push(*span),
            TraceItem::AttemptEnd { id, at } => ends.push((id, at)),
        }
    }
    for ends in ends.chunks(JOBS_AT_ONCE) {
        let jobs = app.store.get(ends.iter().map(|(id, _)| JobRef::Id(*id)).collect()).await;
        let Ok(jobs) = jobs else {
            app.tracer.count_dropped(ends.len());
            continue;
        };
        for ((_, at), job) in ends.iter().zip(jobs) {
            let Some(job) = job else {
                // Deleted since.
                app.tracer.count_dropped(1);
                continue;
            };
            let ended = job.attempts.iter().rev().find(|attempt| attempt.end.as_ref().is_some_and(|end| end.at == *at));
            spans.extend(ended.and_then(|attempt| span::of_attempt(&job, attempt, &config.sampler)));
        }
    }
    spans
}

/// Sends spans, a few times if the collector is not there. Then they are dropped.
async fn export(app: &AppState, active: &ActiveTracer, client: &WebhookClient<SystemDialer>, spans: &[Span]) {
    for pause in RETRY_PAUSES {
        match send(app, active, client, spans).await {
            Sent::Ended => return,
            Sent::TryAgain { retry_after } => {
                sleep(retry_after.map_or(pause, |asked| asked.clamp(pause, RETRY_AFTER_MAX))).await;
            }
        }
    }
    if let Sent::TryAgain { .. } = send(app, active, client, spans).await {
        app.tracer.count_dropped(spans.len());
    }
}

/// How a request to the collector has ended.
enum Sent {
    /// The spans are exported, or refused for good.
    Ended,
    TryAgain {
        retry_after: Option<Duration>,
    },
}

async fn send(app: &AppState, active: &ActiveTracer, client: &WebhookClient<SystemDialer>, spans: &[Span]) -> Sent {
    if spans.is_empty() {
        return Sent::Ended;
    }
    let body = export_body(&active.config, spans).into();
    let now = SystemClock::new().now().as_millis().div_euclid(1_000);
    match client.post(&active.config.url, &active.config.headers, body, now).await {
        AttemptResult::Response { status: 200..=299, .. } => {
            app.tracer.exported.fetch_add(spans.len() as u64, Ordering::Relaxed);
            Sent::Ended
        }
        AttemptResult::Response { status: 429 | 502 | 503 | 504, retry_after } => Sent::TryAgain { retry_after },
        AttemptResult::Response { status, .. } => {
            tracing::warn!(status, "the collector refused spans; they are dropped");
            app.tracer.count_dropped(spans.len());
            Sent::Ended
        }
        AttemptResult::Failure(failure) => {
            tracing::debug!(%failure, "the collector did not answer");
            Sent::TryAgain { retry_after: None }
        }
    }
}
