//! The state that dispatcher, runs and lease keeper of a worker share.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use longshore_api::enums::{ReportedCategory, WorkerDirective};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::WorkerOptions;
use super::active_job::{ActiveJob, CancelReason, JobPhase, JobTable};
use super::context::{ContextShared, JobContext};
use super::handler::{AnyHandler, BoxFuture};
use super::middleware::{Middleware, Next};
use super::outcome::{JobOutcome, reported, system_failure};
use super::report::{Reporter, RunEnd, WorkerEvent};
use super::settle::{PendingSettlement, SettleQueue};
use crate::client::Client;
use crate::clock::monotonic;

/// Handlers by type, and one for all other types.
#[derive(Clone, Default)]
pub(crate) struct HandlerSet {
    pub(crate) by_type: HashMap<String, Arc<dyn AnyHandler>>,
    pub(crate) fallback: Option<Arc<dyn AnyHandler>>,
}

impl HandlerSet {
    fn find(&self, job_type: &str) -> Option<&Arc<dyn AnyHandler>> {
        self.by_type.get(job_type).or(self.fallback.as_ref())
    }
}

/// When handlers are cancelled and jobs are released, once the worker shuts down.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShutdownTimes {
    pub(crate) cancel_at: Option<Duration>,
    pub(crate) release_at: Option<Duration>,
    pub(crate) is_cancelled: bool,
}

pub(crate) struct WorkerCore {
    pub(crate) options: WorkerOptions,
    pub(crate) client: Client,
    pub(crate) context: Arc<ContextShared>,
    pub(crate) table: Arc<JobTable>,
    pub(crate) queue: SettleQueue,
    pub(crate) reporter: Reporter,
    pub(crate) handlers: HandlerSet,
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
        handlers: HandlerSet,
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
            middleware: middleware.into(),
            draining: watch::Sender::new(false),
            shutdown: Mutex::default(),
            stop_count: AtomicU8::new(0),
            is_finished: AtomicBool::new(false),
        }
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

    /// First call: drains. Second call: releases all. Returns how many calls there were.
    pub(crate) fn on_stop(&self) -> u8 {
        let count = self.stop_count.fetch_add(1, Ordering::AcqRel).saturating_add(1);
        match count {
            1 => self.begin_drain(),
            _ => self.release_all(),
        }
        count
    }

    /// Starts the handler of a job in a task of its own.
    pub(crate) fn start_run(self: &Arc<Self>, active: &Arc<ActiveJob>) {
        self.table.add_running();
        let _: Result<(), Duration> = active.started_at.set(monotonic());
        let run = tokio::spawn(Arc::clone(self).run_job(Arc::clone(active)));
        drop(active.run.set(run.abort_handle()));
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
        let Some(handler) = self.handlers.find(context.job_type()) else {
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
                    self.table.free_slot();
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
            self.table.free_slot();
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.map_or_else(|| "the handler panicked".to_owned(), |text| format!("the handler panicked: {text}"))
}
