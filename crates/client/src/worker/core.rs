//! The state that dispatcher, runs and lease keeper of a worker share.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use longshore_api::enums::{ReportedCategory, WorkerDirective};
use longshore_api::work::ClaimedJob;
use longshore_api::{RetryAdvice, Time};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::Instrument;

use super::active_job::{ActiveJob, CancelReason, JobPhase, JobTable};
use super::context::{ContextShared, JobContext};
use super::handler::{AnyHandler, BoxFuture};
use super::middleware::{Middleware, Next};
use super::outcome::{JobOutcome, reported, system_failure};
use super::report::{Reporter, RunEnd, WorkerEvent, is_outage};
use super::server_clock::ClockEstimate;
use super::settle::{PendingSettlement, SettleQueue};
use super::{WorkerError, WorkerOptions};
use crate::client::Client;
use crate::clock::monotonic;
use crate::hangup::Hangup;
use crate::random::BackoffTimer;
use crate::schedules::ScheduleRequest;

/// Handlers by type, and one for all other types.
#[derive(Clone, Default)]
pub(crate) struct HandlerSet {
    pub(crate) by_type: HashMap<String, TypeHandler>,
    pub(crate) fallback: Option<TypeHandler>,
}

/// The handler of a job type, and its group of slots.
#[derive(Clone)]
pub(crate) struct TypeHandler {
    pub(crate) handler: Arc<dyn AnyHandler>,
    pub(crate) group: usize,
}

impl HandlerSet {
    fn find(&self, job_type: &str) -> Option<&TypeHandler> {
        self.by_type.get(job_type).or(self.fallback.as_ref())
    }
}

/// Slots that some job types share. Each batch handler has a group of its own.
#[derive(Clone, Debug)]
pub(crate) struct SlotGroup {
    pub(crate) slots: usize,
    /// Types to claim, sorted; none means all types.
    pub(crate) types: Vec<String>,
}

/// When handlers are cancelled and jobs are released, once the worker shuts down.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShutdownTimes {
    pub(crate) cancel_at: Option<Duration>,
    pub(crate) release_at: Option<Duration>,
    pub(crate) is_cancelled: bool,
}

/// What the lease keeper's thread has of its own: no handler can block them.
#[derive(Debug)]
pub(crate) struct KeeperLink {
    pub(crate) runtime: Handle,
    pub(crate) client: Client,
}

pub(crate) struct WorkerCore {
    pub(crate) options: WorkerOptions,
    pub(crate) client: Client,
    pub(crate) context: Arc<ContextShared>,
    pub(crate) table: Arc<JobTable>,
    pub(crate) queue: SettleQueue,
    pub(crate) reporter: Reporter,
    pub(crate) handlers: HandlerSet,
    pub(crate) groups: Vec<SlotGroup>,
    pub(crate) clock: Mutex<ClockEstimate>,
    /// Ends the claims that wait at the server.
    pub(crate) hangup: Arc<Hangup>,
    /// Set when the thread of the lease keeper has started.
    pub(crate) keeper: OnceLock<KeeperLink>,
    /// The limit of stuck handlers was reached.
    pub(crate) is_stuck: AtomicBool,
    /// The future of the run was dropped: the lease keeper releases the jobs and ends.
    pub(crate) is_dropped: AtomicBool,
    /// Requests whose responses may bring jobs, or verdicts, after the run was dropped.
    in_flight: AtomicUsize,
    pub(crate) middleware: Arc<[Arc<dyn Middleware>]>,
    /// Drains as soon as it is true.
    pub(crate) draining: watch::Sender<bool>,
    pub(crate) shutdown: Mutex<ShutdownTimes>,
    /// Signals and stop requests so far.
    stop_count: AtomicU8,
    /// The dispatcher has ended: the lease keeper ends, too.
    pub(crate) is_finished: AtomicBool,
}

impl WorkerCore {
    pub(crate) fn new(
        options: WorkerOptions,
        context: Arc<ContextShared>,
        (handlers, groups): (HandlerSet, Vec<SlotGroup>),
        middleware: Vec<Arc<dyn Middleware>>,
        reporter: Reporter,
    ) -> Self {
        Self {
            options,
            client: context.client.clone(),
            table: Arc::clone(&context.table),
            context,
            queue: SettleQueue::default(),
            reporter,
            handlers,
            groups,
            clock: Mutex::default(),
            hangup: Arc::default(),
            keeper: OnceLock::new(),
            is_stuck: AtomicBool::new(false),
            is_dropped: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            middleware: middleware.into(),
            draining: watch::Sender::new(false),
            shutdown: Mutex::default(),
            stop_count: AtomicU8::new(0),
            is_finished: AtomicBool::new(false),
        }
    }

    /// Adds the jobs of a claim's response to the table.
    pub(crate) fn insert_claimed(
        &self,
        jobs: Vec<ClaimedJob>,
        sent: Duration,
        received: Duration,
        now: Time,
    ) -> Vec<Arc<ActiveJob>> {
        let answered_at = {
            let mut clock = self.clock.lock();
            let answered_at = clock.answered_at(sent, received, now);
            clock.add(sent, received, now);
            answered_at
        };
        let group_of = |job_type: &str| self.handlers.find(job_type).map_or(0, |found| found.group);
        self.table.insert(jobs, group_of, answered_at, now)
    }

    /// Counts a request that goes on without the run, until the returned guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> RequestInFlight {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        RequestInFlight(Arc::clone(self))
    }

    pub(super) fn has_requests(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Whether no job is in the table, and no settlement waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.table.is_empty() && self.queue.len() == 0
    }

    /// Slots of all groups.
    pub(crate) fn slots(&self) -> usize {
        self.groups.iter().map(|group| group.slots).sum()
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Stops claims. Handlers have the grace time.
    pub(crate) fn begin_drain(&self) {
        let now = monotonic();
        {
            let mut times = self.shutdown.lock();
            times.cancel_at.get_or_insert(now + self.options.cancel_after());
            times.release_at.get_or_insert(now + self.options.grace);
        }
        if !self.draining.send_replace(true) {
            self.reporter.emit(&WorkerEvent::Draining { running: self.table.running() });
        }
        self.hangup.fire();
        self.table.keeper_wake.notify_one();
    }

    /// Obeys the server: `stop` drains, as a signal does. A quiet worker gets no jobs; it goes on
    /// claiming, so that a later `run` reaches it.
    pub(crate) fn obey(&self, directive: WorkerDirective) {
        match directive {
            WorkerDirective::Stop => self.begin_drain(),
            WorkerDirective::Run | WorkerDirective::Quiet => {}
        }
    }

    /// Fires all tokens, and releases the jobs soon.
    pub(crate) fn release_all(&self) {
        self.begin_drain();
        let now = monotonic();
        let mut times = self.shutdown.lock();
        times.cancel_at = Some(now);
        times.release_at = times.release_at.map(|at| at.min(now + self.options.release_grace));
        drop(times);
        self.table.keeper_wake.notify_one();
    }

    /// Fires all tokens and releases the jobs, without waiting for their handlers.
    pub(crate) fn release_now(&self) {
        self.begin_drain();
        let now = monotonic();
        let mut times = self.shutdown.lock();
        times.cancel_at = Some(now);
        times.release_at = Some(now);
        drop(times);
        self.table.keeper_wake.notify_one();
    }

    /// First call: drains. Second call: releases all. Returns how many calls there were.
    pub(crate) fn on_stop(&self) -> u8 {
        let count = self.stop_count.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        match count {
            1 => self.begin_drain(),
            _ => self.release_all(),
        }
        count
    }

    /// Creates the schedules. Retries until the server responds, or until the worker is stopped.
    pub(crate) async fn put_schedules(&self, schedules: Vec<ScheduleRequest>) -> Result<(), WorkerError> {
        let mut draining = self.draining.subscribe();
        for schedule in schedules {
            let name = schedule.name.clone();
            let refused = |error| WorkerError::Schedule { name: name.clone(), error };
            let put = schedule.into_put(&self.client).map_err(refused)?;
            let mut backoff = BackoffTimer::new(Duration::from_millis(250), Duration::from_secs(10));
            loop {
                let result = tokio::select! {
                    result = self.client.put_schedule(&name, &put) => result,
                    _ = draining.wait_for(|is_draining| *is_draining) => return Ok(()),
                };
                self.reporter.observe_response(&result);
                let delay = match result {
                    Ok(_) => break,
                    Err(error) if error.retry() == RetryAdvice::Never && !is_outage(&error) => {
                        return Err(refused(error));
                    }
                    Err(error) => backoff.next_delay_after(&error, Duration::from_secs(60)),
                };
                tokio::select! {
                    () = tokio::time::sleep(delay) => {}
                    _ = draining.wait_for(|is_draining| *is_draining) => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Starts the handler of a job in a task of its own.
    pub(crate) fn start_run(self: &Arc<Self>, active: &Arc<ActiveJob>) {
        self.table.take_slot(active);
        let _: Result<(), Duration> = active.started_at.set(monotonic());
        let job = &active.job;
        let span = tracing::info_span!("job", id = job.id, job_type = job.job_type, attempt = job.attempt);
        let run = tokio::spawn(Arc::clone(self).run_job(Arc::clone(active)).instrument(span));
        drop(active.run.set(run.abort_handle()));
        if active.phase() != JobPhase::Running {
            // The lease keeper has released it before it could end this task.
            run.abort();
        }
        if self.shutdown.lock().is_cancelled {
            active.token.fire(CancelReason::Drain);
        }
    }

    async fn run_job(self: Arc<Self>, active: Arc<ActiveJob>) {
        let context = JobContext { active: Arc::clone(&active), shared: Arc::clone(&self.context) };
        let call = AssertUnwindSafe(async { self.call_handler(context).await });
        let outcome = call.catch_unwind().await.unwrap_or_else(|panic| {
            self.reporter.count_panic();
            system_failure("panic", panic_message(panic.as_ref()))
        });
        self.finish_run(&active, outcome);
    }

    fn call_handler(&self, context: JobContext) -> BoxFuture<'_, JobOutcome> {
        let Some(TypeHandler { handler, .. }) = self.handlers.find(context.job_type()) else {
            // The claim names the types: a job of another type is a defect of the server.
            return Box::pin(std::future::ready(JobOutcome::Release));
        };
        if self.middleware.is_empty() {
            return handler.run(context);
        }
        Next { rest: &self.middleware, handler }.run(context)
    }

    /// Queues the settlement of a run and frees its slot.
    fn finish_run(&self, active: &Arc<ActiveJob>, outcome: JobOutcome) {
        let outcome = match (active.token.reason(), outcome) {
            (Some(CancelReason::LeaseLost), _) => {
                if active.change_phase(JobPhase::Running, JobPhase::Settling) {
                    self.table.free_slot(active);
                    self.end_run(active, RunEnd::Lost, None, Some("the lease was lost"));
                }
                return;
            }
            (Some(CancelReason::Drain), JobOutcome::Fail(_)) => JobOutcome::Release,
            (Some(CancelReason::Deadline), JobOutcome::Fail(error)) => {
                let message = error.message.unwrap_or_default();
                let code = Some("execution_timeout".to_owned());
                JobOutcome::Fail(reported(ReportedCategory::Timeout, code, message))
            }
            (_, outcome) => outcome,
        };
        if active.change_phase(JobPhase::Running, JobPhase::Settling) {
            self.queue.push(PendingSettlement { active: Arc::clone(active), outcome, finished_at: monotonic() });
            self.table.free_slot(active);
        }
    }
}

/// A request that goes on without the run.
pub(super) struct RequestInFlight(Arc<WorkerCore>);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.map_or_else(|| "the handler panicked".to_owned(), |text| format!("the handler panicked: {text}"))
}
