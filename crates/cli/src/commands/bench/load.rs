//! Generates the load: one task per connection and operation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::ProgressBar;
use longshore::monotonic;
use longshore::{Client, JobListQuery};
use longshore_api::enums::OutcomeKind;
use longshore_api::job::NewJob;
use longshore_api::queue::PutQueue;
use longshore_api::work::{Claim, ClaimedJob, Complete, Settlement, Verdict};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Bench;
use super::rate_limiter::RateLimiter;
use super::report::{BenchResult, Measurements, Operation};
use crate::context::Context;
use crate::signals::Signals;
use crate::terminal::error::CliError;
use crate::terminal::progress;

/// Wait of a claim: long enough to save requests, short enough to notice the end of the run.
const CLAIM_WAIT: longshore_api::Duration = longshore_api::Duration(500);
/// Number of recent ids that `get` chooses from.
const RECENT_MAX: usize = 1_000;

/// State that all tasks share.
struct Load {
    bench: Bench,
    client: Client,
    queue: String,
    started: Duration,
    submit_limiter: RateLimiter,
    get_limiter: RateLimiter,
    list_limiter: RateLimiter,
    /// Jobs that tasks have reserved for submission; used with `--jobs`.
    reserved: AtomicU64,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// Tasks start no more submissions and reads.
    submissions_done: AtomicBool,
    /// Workers stop, also if jobs are left.
    stopped: AtomicBool,
    /// Microseconds from the start to the last completion.
    last_done: AtomicU64,
    recent: Mutex<VecDeque<String>>,
    bar: ProgressBar,
}

/// Payload of a job, without its padding.
#[derive(Deserialize)]
struct BenchPayload {
    /// Process that submitted the job.
    from: u32,
    /// Microseconds of that process's monotonic clock.
    sent: u64,
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

pub(super) async fn run(context: &Context, bench: Bench, client: Client) -> Result<BenchResult, CliError> {
    let signals = Signals::listen()?;
    client.info().await?;
    let own = bench.queue.is_none();
    let queue = bench.queue.clone().unwrap_or_else(|| format!("bench-{}", std::process::id()));
    if own {
        client.put_queue(&queue, &PutQueue::default()).await?;
    }
    let worked = bench.mix.work > 0;
    let (keep, tasks) = (bench.keep, bench.mix.tasks(bench.concurrency));
    let load = Arc::new(Load::new(context, bench, client.clone(), queue.clone()));
    let mut submitters = JoinSet::new();
    let mut others = JoinSet::new();
    for _ in 0..tasks.submit {
        submitters.spawn(Arc::clone(&load).submit());
    }
    for _ in 0..tasks.work {
        others.spawn(Arc::clone(&load).work());
    }
    for _ in 0..tasks.get {
        others.spawn(Arc::clone(&load).get());
    }
    for _ in 0..tasks.list {
        others.spawn(Arc::clone(&load).list());
    }
    let measurements = load.clone().until_done(&signals, submitters, others).await?;
    load.bar.finish_and_clear();
    if own && !keep {
        client.delete_queue(&queue, true).await?;
    }
    let passed = match load.last_done.load(Ordering::SeqCst) {
        0 => monotonic().saturating_sub(load.started),
        last => Duration::from_micros(last),
    };
    Ok(BenchResult {
        measurements,
        started: load.started,
        seconds: passed.as_secs_f64(),
        submitted: load.submitted.load(Ordering::SeqCst),
        completed: load.completed.load(Ordering::SeqCst),
        worked,
    })
}

impl Load {
    fn new(context: &Context, bench: Bench, client: Client, queue: String) -> Self {
        let started = monotonic();
        let share = |part: u32| f64::from(part) / f64::from(bench.mix.submit.max(1));
        #[expect(clippy::cast_precision_loss, reason = "at most 1,000")]
        let calls = bench.rate.map(|rate| rate / bench.batch as f64);
        let relative = |part: u32| calls.map(|calls| (calls * share(part)).max(0.001));
        let total = bench.jobs.unwrap_or(bench.duration.0);
        Self {
            started,
            submit_limiter: RateLimiter::new(started, calls),
            get_limiter: RateLimiter::new(started, relative(bench.mix.get)),
            list_limiter: RateLimiter::new(started, relative(bench.mix.list)),
            bench,
            client,
            queue,
            reserved: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            submissions_done: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            last_done: AtomicU64::new(0),
            recent: Mutex::new(VecDeque::new()),
            bar: progress::bar(Some(total), context.output.json),
        }
    }

    /// Runs until the duration has passed, all jobs are submitted, or a signal arrives. Then waits
    /// until the workers have completed all jobs, at most `--drain-timeout`.
    async fn until_done(
        self: Arc<Self>,
        signals: &Signals,
        mut submitters: JoinSet<Measurements>,
        mut others: JoinSet<Measurements>,
    ) -> Result<Measurements, CliError> {
        let mut measurements = Measurements::default();
        let lost = |error| CliError::failed(format!("a task was lost: {error}"));
        let end = self.started + self.bench.duration.as_std();
        let by_number = self.bench.jobs.is_some();
        while !self.submissions_done.load(Ordering::SeqCst) {
            let left = if by_number { Duration::MAX } else { end.saturating_sub(monotonic()) };
            tokio::select! {
                Some(done) = submitters.join_next() => {
                    measurements.merge(done.map_err(lost)?);
                    if submitters.is_empty() {
                        self.submissions_done.store(true, Ordering::SeqCst);
                    }
                }
                () = sleep(left.min(Duration::from_millis(100))) => {
                    if left.is_zero() {
                        self.submissions_done.store(true, Ordering::SeqCst);
                    }
                }
                () = signals.received(1) => self.submissions_done.store(true, Ordering::SeqCst),
            }
            self.show_progress();
        }
        while let Some(done) = submitters.join_next().await {
            measurements.merge(done.map_err(lost)?);
        }
        // All submissions are known now. Workers end when all jobs are completed.
        let workers_left = async {
            while let Some(done) = others.join_next().await {
                measurements.merge(done.map_err(lost)?);
                self.show_progress();
            }
            Ok::<(), CliError>(())
        };
        let drained = tokio::select! {
            drained = timeout(self.bench.drain_timeout.as_std(), workers_left) => drained,
            () = signals.received(1) => Ok(Ok(())),
        };
        if let Ok(done) = drained {
            done?;
        }
        self.stopped.store(true, Ordering::SeqCst);
        while let Some(done) = others.join_next().await {
            measurements.merge(done.map_err(lost)?);
        }
        Ok(measurements)
    }

    fn show_progress(&self) {
        let (submitted, completed) = (self.submitted.load(Ordering::Relaxed), self.completed.load(Ordering::Relaxed));
        let position = match self.bench.jobs {
            Some(_) => submitted,
            None => u64::try_from(monotonic().saturating_sub(self.started).as_millis()).unwrap_or(u64::MAX),
        };
        self.bar.set_position(position.min(self.bar.length().unwrap_or(position)));
        self.bar.set_message(format!("{submitted} submitted, {completed} completed"));
    }

    /// Reserves the jobs of the next request. Returns 0 when all jobs are submitted.
    fn reserve(&self) -> u64 {
        if self.submissions_done.load(Ordering::Relaxed) {
            return 0;
        }
        let Some(total) = self.bench.jobs else { return self.bench.batch };
        let before = self.reserved.fetch_add(self.bench.batch, Ordering::Relaxed);
        total.saturating_sub(before).min(self.bench.batch)
    }

    async fn submit(self: Arc<Self>) -> Measurements {
        let mut measurements = Measurements::default();
        loop {
            let count = self.reserve();
            if count == 0 {
                return measurements;
            }
            let due = self.submit_limiter.next_slot().await;
            if self.submissions_done.load(Ordering::Relaxed) {
                return measurements;
            }
            let job = self.job();
            let ids = if count == 1 {
                self.client.submit_job(&self.queue, &job).await.map(|done| vec![done.id])
            } else {
                let jobs = vec![job; usize::try_from(count).unwrap_or(1)];
                let done = self.client.submit_jobs(&self.queue, &jobs).await;
                done.map(|done| done.jobs.into_iter().map(|job| job.id).collect())
            };
            match ids {
                Ok(ids) => {
                    measurements.record_latency(Operation::Submit, monotonic().saturating_sub(due), count);
                    self.submitted.fetch_add(count, Ordering::SeqCst);
                    self.record_progress();
                    self.remember(ids);
                }
                Err(error) => self.record_failure(&mut measurements, Operation::Submit, &error).await,
            }
        }
    }

    fn job(&self) -> NewJob {
        let padding = "x".repeat(usize::try_from(self.bench.payload_bytes).unwrap_or(0).saturating_sub(40));
        let (from, sent) = (std::process::id(), micros(monotonic()));
        let text = format!(r#"{{"from":{from},"sent":{sent},"padding":"{padding}"}}"#);
        let payload = serde_json::value::RawValue::from_string(text).ok();
        NewJob { job_type: "bench".to_owned(), payload, ..NewJob::default() }
    }

    fn remember(&self, ids: Vec<String>) {
        if self.bench.mix.get == 0 {
            return;
        }
        let mut recent = self.recent.lock();
        recent.extend(ids);
        let surplus = recent.len().saturating_sub(RECENT_MAX);
        recent.drain(..surplus);
    }

    fn record_progress(&self) {
        self.last_done.fetch_max(micros(monotonic().saturating_sub(self.started)), Ordering::SeqCst);
    }

    /// Counts the error, and pauses so that a failing server is not flooded.
    async fn record_failure(&self, measurements: &mut Measurements, operation: Operation, error: &longshore::Error) {
        measurements.record_error(operation, &error.to_string());
        sleep(Duration::from_millis(50)).await;
    }

    fn is_work_done(&self) -> bool {
        let submissions_done = self.submissions_done.load(Ordering::SeqCst);
        let all_completed = self.bench.mix.submit == 0
            || self.completed.load(Ordering::SeqCst) >= self.submitted.load(Ordering::SeqCst);
        self.stopped.load(Ordering::SeqCst) || submissions_done && all_completed
    }

    async fn work(self: Arc<Self>) -> Measurements {
        let mut measurements = Measurements::default();
        let claim = Claim {
            queues: vec![self.queue.clone()],
            worker: Some(format!("bench-{}", std::process::id())),
            limit: Some(self.bench.batch),
            wait: Some(CLAIM_WAIT),
            ..Claim::default()
        };
        while !self.is_work_done() {
            let asked = monotonic();
            match self.client.claim(&claim).await {
                Ok(claimed) if claimed.jobs.is_empty() => {}
                Ok(claimed) => {
                    let now = monotonic();
                    measurements.record_latency(Operation::Claim, now.saturating_sub(asked), claimed.jobs.len() as u64);
                    for job in &claimed.jobs {
                        if let Some(sent) = sent_by_us(job) {
                            measurements.record_latency(Operation::EndToEnd, now.saturating_sub(sent), 1);
                        }
                    }
                    self.complete(&mut measurements, claimed.jobs).await;
                }
                Err(error) => self.record_failure(&mut measurements, Operation::Claim, &error).await,
            }
        }
        measurements
    }

    async fn complete(&self, measurements: &mut Measurements, jobs: Vec<ClaimedJob>) {
        let asked = monotonic();
        let done = match jobs.as_slice() {
            [job] => {
                let complete = Complete { lease: Some(job.lease.token.clone()), result: None, progress: None };
                self.client.complete(&job.id, &complete).await.map(|_| 1)
            }
            several => {
                let settlement = |job: &ClaimedJob| Settlement {
                    id: job.id.clone(),
                    lease: Some(job.lease.token.clone()),
                    outcome: OutcomeKind::Complete,
                    result: None,
                    progress: None,
                    error: None,
                    delay: None,
                };
                let settled = self.client.settle(several.iter().map(settlement).collect()).await;
                settled.map(|settled| {
                    let refused = settled.results.iter().filter_map(|verdict| match verdict {
                        Verdict::Refused { detail, .. } => Some(detail),
                        Verdict::Done(_) => None,
                    });
                    let refused: Vec<&String> = refused.collect();
                    for detail in &refused {
                        measurements.record_error(Operation::Complete, detail);
                    }
                    (several.len() - refused.len()) as u64
                })
            }
        };
        match done {
            Ok(done) => {
                measurements.record_latency(Operation::Complete, monotonic().saturating_sub(asked), done);
                self.completed.fetch_add(done, Ordering::SeqCst);
                self.record_progress();
            }
            Err(error) => self.record_failure(measurements, Operation::Complete, &error).await,
        }
    }

    async fn get(self: Arc<Self>) -> Measurements {
        let mut measurements = Measurements::default();
        let mut position = 0_usize;
        while !self.submissions_done.load(Ordering::Relaxed) {
            let due = self.get_limiter.next_slot().await;
            position = position.wrapping_add(7);
            let id = {
                let recent = self.recent.lock();
                let index = position.checked_rem(recent.len());
                index.and_then(|index| recent.get(index).cloned())
            };
            let Some(id) = id else {
                sleep(Duration::from_millis(5)).await;
                continue;
            };
            match self.client.job(&id).await {
                Ok(_) => measurements.record_latency(Operation::Get, monotonic().saturating_sub(due), 1),
                Err(error) => self.record_failure(&mut measurements, Operation::Get, &error).await,
            }
        }
        measurements
    }

    async fn list(self: Arc<Self>) -> Measurements {
        let mut measurements = Measurements::default();
        let filter = JobListQuery { queue: Some(self.queue.clone()), limit: Some(10), ..JobListQuery::default() };
        while !self.submissions_done.load(Ordering::Relaxed) {
            let due = self.list_limiter.next_slot().await;
            match self.client.jobs(&filter).await {
                Ok(page) => {
                    measurements.record_latency(
                        Operation::List,
                        monotonic().saturating_sub(due),
                        page.jobs.len() as u64,
                    );
                }
                Err(error) => self.record_failure(&mut measurements, Operation::List, &error).await,
            }
        }
        measurements
    }
}

/// Returns when a job was submitted, if this process has submitted it.
fn sent_by_us(job: &ClaimedJob) -> Option<Duration> {
    let payload: BenchPayload = serde_json::from_str(job.payload.as_ref()?.get()).ok()?;
    (payload.from == std::process::id()).then(|| Duration::from_micros(payload.sent))
}
