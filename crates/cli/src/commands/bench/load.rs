//! The calls themselves.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;
use longshore_api::enums::OutcomeKind;
use longshore_api::job::NewJob;
use longshore_api::queue::PutQueue;
use longshore_api::work::{Claim, ClaimedJob, Complete, Settlement, Verdict};
use longshore_client::{Client, JobFilter};
use longshore_store::clock::monotonic;
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Bench;
use super::rate_limiter::RateLimiter;
use super::report::{Measured, Operation, Tally};
use crate::context::Context;
use crate::signals::Signals;
use crate::terminal::error::CliError;
use crate::terminal::progress;

/// Long enough to save calls, short enough to see that all is done.
const CLAIM_WAIT: longshore_api::Duration = longshore_api::Duration(500);
/// Ids that `get` chooses from.
const RECENT: usize = 1_000;

/// What all tasks share.
struct Load {
    bench: Bench,
    client: Client,
    queue: String,
    started: Duration,
    submit_pace: RateLimiter,
    get_pace: RateLimiter,
    list_pace: RateLimiter,
    /// Jobs that were reserved for submission, when a number was asked for.
    reserved: AtomicU64,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// No more submissions.
    enough: AtomicBool,
    /// No more calls at all.
    over: AtomicBool,
    /// Microseconds from the start to the last completion.
    last_done: AtomicU64,
    recent: Mutex<VecDeque<String>>,
    bar: ProgressBar,
}

/// What a job of ours carries, besides its filling.
#[derive(Deserialize)]
struct BenchPayload {
    /// The process that sent it.
    from: u32,
    /// Microseconds of that process.
    sent: u64,
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

pub(super) async fn run(context: &Context, bench: Bench, client: Client) -> Result<Measured, CliError> {
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
    let tally = load.clone().until_done(&signals, submitters, others).await?;
    load.bar.finish_and_clear();
    if own && !keep {
        client.delete_queue(&queue, true).await?;
    }
    let passed = match load.last_done.load(Ordering::SeqCst) {
        0 => monotonic().saturating_sub(load.started),
        last => Duration::from_micros(last),
    };
    Ok(Measured {
        tally,
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
        let beside = |part: u32| calls.map(|calls| (calls * share(part)).max(0.001));
        let total = bench.jobs.unwrap_or(bench.duration.0);
        Self {
            started,
            submit_pace: RateLimiter::new(started, calls),
            get_pace: RateLimiter::new(started, beside(bench.mix.get)),
            list_pace: RateLimiter::new(started, beside(bench.mix.list)),
            bench,
            client,
            queue,
            reserved: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            enough: AtomicBool::new(false),
            over: AtomicBool::new(false),
            last_done: AtomicU64::new(0),
            recent: Mutex::new(VecDeque::new()),
            bar: progress::bar(Some(total), context.screen.json),
        }
    }

    /// Until the time is up, the jobs are all there, or somebody interrupts; then until they are worked off.
    async fn until_done(
        self: Arc<Self>,
        signals: &Signals,
        mut submitters: JoinSet<Tally>,
        mut others: JoinSet<Tally>,
    ) -> Result<Tally, CliError> {
        let mut tally = Tally::default();
        let lost = |error| CliError::failed(format!("a task was lost: {error}"));
        let end = self.started + self.bench.duration.as_std();
        let by_number = self.bench.jobs.is_some();
        while !self.enough.load(Ordering::SeqCst) {
            let left = if by_number { Duration::MAX } else { end.saturating_sub(monotonic()) };
            tokio::select! {
                Some(done) = submitters.join_next() => {
                    tally.merge(done.map_err(lost)?);
                    if submitters.is_empty() {
                        self.enough.store(true, Ordering::SeqCst);
                    }
                }
                () = sleep(left.min(Duration::from_millis(100))) => {
                    if left.is_zero() {
                        self.enough.store(true, Ordering::SeqCst);
                    }
                }
                () = signals.received(1) => self.enough.store(true, Ordering::SeqCst),
            }
            self.show_progress();
        }
        while let Some(done) = submitters.join_next().await {
            tally.merge(done.map_err(lost)?);
        }
        // Submitters have ended: what is to be worked off is known. Readers have nothing to wait for.
        let workers_left = async {
            while let Some(done) = others.join_next().await {
                tally.merge(done.map_err(lost)?);
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
        self.over.store(true, Ordering::SeqCst);
        while let Some(done) = others.join_next().await {
            tally.merge(done.map_err(lost)?);
        }
        Ok(tally)
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

    /// How many jobs the next call may submit; 0 when there are enough.
    fn reserve(&self) -> u64 {
        if self.enough.load(Ordering::Relaxed) {
            return 0;
        }
        let Some(total) = self.bench.jobs else { return self.bench.batch };
        let before = self.reserved.fetch_add(self.bench.batch, Ordering::Relaxed);
        total.saturating_sub(before).min(self.bench.batch)
    }

    async fn submit(self: Arc<Self>) -> Tally {
        let mut tally = Tally::default();
        loop {
            let count = self.reserve();
            if count == 0 {
                return tally;
            }
            let due = self.submit_pace.turn().await;
            if self.enough.load(Ordering::Relaxed) {
                return tally;
            }
            let job = self.job();
            let ids = if count == 1 {
                self.client.submit(&self.queue, &job).await.map(|done| vec![done.id])
            } else {
                let jobs = vec![job; usize::try_from(count).unwrap_or(1)];
                let done = self.client.submit_batch(&self.queue, &jobs).await;
                done.map(|done| done.jobs.into_iter().map(|job| job.id).collect())
            };
            match ids {
                Ok(ids) => {
                    tally.took(Operation::Submit, monotonic().saturating_sub(due), count);
                    self.submitted.fetch_add(count, Ordering::SeqCst);
                    self.done_now();
                    self.remember(ids);
                }
                Err(error) => self.trouble(&mut tally, Operation::Submit, &error).await,
            }
        }
    }

    fn job(&self) -> NewJob {
        let fill = "x".repeat(usize::try_from(self.bench.payload_bytes).unwrap_or(0).saturating_sub(40));
        let (from, sent) = (std::process::id(), micros(monotonic()));
        let text = format!(r#"{{"from":{from},"sent":{sent},"fill":"{fill}"}}"#);
        let payload = serde_json::value::RawValue::from_string(text).ok();
        NewJob { job_type: "bench".to_owned(), payload, ..NewJob::default() }
    }

    fn remember(&self, ids: Vec<String>) {
        if self.bench.mix.get == 0 {
            return;
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.extend(ids);
        let surplus = recent.len().saturating_sub(RECENT);
        recent.drain(..surplus);
    }

    fn done_now(&self) {
        self.last_done.fetch_max(micros(monotonic().saturating_sub(self.started)), Ordering::SeqCst);
    }

    /// Counts it, and does not make it worse.
    async fn trouble(&self, tally: &mut Tally, operation: Operation, error: &longshore_client::Error) {
        tally.went_wrong(operation, &error.to_string());
        sleep(Duration::from_millis(50)).await;
    }

    fn work_is_over(&self) -> bool {
        let enough = self.enough.load(Ordering::SeqCst);
        let all = self.bench.mix.submit == 0
            || self.completed.load(Ordering::SeqCst) >= self.submitted.load(Ordering::SeqCst);
        self.over.load(Ordering::SeqCst) || enough && all
    }

    async fn work(self: Arc<Self>) -> Tally {
        let mut tally = Tally::default();
        let claim = Claim {
            queues: vec![self.queue.clone()],
            worker: Some(format!("bench-{}", std::process::id())),
            limit: Some(self.bench.batch),
            wait: Some(CLAIM_WAIT),
            ..Claim::default()
        };
        while !self.work_is_over() {
            let asked = monotonic();
            match self.client.claim(&claim).await {
                Ok(claimed) if claimed.jobs.is_empty() => {}
                Ok(claimed) => {
                    let now = monotonic();
                    tally.took(Operation::Claim, now.saturating_sub(asked), claimed.jobs.len() as u64);
                    for job in &claimed.jobs {
                        if let Some(sent) = sent_by_us(job) {
                            tally.took(Operation::EndToEnd, now.saturating_sub(sent), 1);
                        }
                    }
                    self.complete(&mut tally, claimed.jobs).await;
                }
                Err(error) => self.trouble(&mut tally, Operation::Claim, &error).await,
            }
        }
        tally
    }

    async fn complete(&self, tally: &mut Tally, jobs: Vec<ClaimedJob>) {
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
                        tally.went_wrong(Operation::Complete, detail);
                    }
                    (several.len() - refused.len()) as u64
                })
            }
        };
        match done {
            Ok(done) => {
                tally.took(Operation::Complete, monotonic().saturating_sub(asked), done);
                self.completed.fetch_add(done, Ordering::SeqCst);
                self.done_now();
            }
            Err(error) => self.trouble(tally, Operation::Complete, &error).await,
        }
    }

    async fn get(self: Arc<Self>) -> Tally {
        let mut tally = Tally::default();
        let mut turn = 0_usize;
        while !self.enough.load(Ordering::Relaxed) {
            let due = self.get_pace.turn().await;
            turn = turn.wrapping_add(7);
            let id = {
                let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
                let place = turn.checked_rem(recent.len());
                place.and_then(|place| recent.get(place).cloned())
            };
            let Some(id) = id else {
                sleep(Duration::from_millis(5)).await;
                continue;
            };
            match self.client.job(&id).await {
                Ok(_) => tally.took(Operation::Get, monotonic().saturating_sub(due), 1),
                Err(error) => self.trouble(&mut tally, Operation::Get, &error).await,
            }
        }
        tally
    }

    async fn list(self: Arc<Self>) -> Tally {
        let mut tally = Tally::default();
        let filter = JobFilter { queue: Some(self.queue.clone()), limit: Some(10), ..JobFilter::default() };
        while !self.enough.load(Ordering::Relaxed) {
            let due = self.list_pace.turn().await;
            match self.client.jobs(&filter).await {
                Ok(page) => {
                    tally.took(Operation::List, monotonic().saturating_sub(due), page.jobs.len() as u64);
                }
                Err(error) => self.trouble(&mut tally, Operation::List, &error).await,
            }
        }
        tally
    }
}

/// When a job of this very process was sent.
fn sent_by_us(job: &ClaimedJob) -> Option<Duration> {
    let carried: BenchPayload = serde_json::from_str(job.payload.as_ref()?.get()).ok()?;
    (carried.from == std::process::id()).then(|| Duration::from_micros(carried.sent))
}
