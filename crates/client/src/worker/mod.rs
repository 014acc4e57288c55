//! The worker: claims jobs, runs handlers, keeps leases, settles outcomes.
//!
//! - [`Worker`]: handlers, options, [`Worker::run`]
//! - `handler.rs`: plain async functions as handlers; `batch.rs`: several jobs in one call
//! - `context.rs`: [`JobContext`]; `outcome.rs`: [`JobOutcome`], [`HandlerError`]
//! - `middleware.rs`: code around every handler; `report.rs`: events, and the report at the end
//! - `active_job.rs`: a claimed job with its lease and token; the table of all of them
//! - `dispatch.rs`: sends claims and settlements; `claims.rs`: claims of a group of slots;
//!   `settle.rs`: what the verdicts mean; `server_clock.rs`: when a response was made
//! - `keeper.rs`: heartbeats, deadlines and shutdown, on a thread of its own; `signals.rs`
//! - `core.rs`: what all of them share; `error.rs`: [`WorkerError`]; `shutdown.rs`:
//!   [`WorkerShutdown`]

mod active_job;
mod batch;
mod claims;
mod context;
mod core;
mod dispatch;
mod error;
mod handler;
mod keeper;
mod middleware;
mod outcome;
mod report;
mod server_clock;
mod settle;
mod shutdown;
mod signals;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(feature = "testing")]
pub(crate) use self::active_job::ActiveJob;
pub(crate) use self::active_job::JobTable;
pub(crate) use self::context::ContextShared;
pub(crate) use self::handler::{StateMap, erase};

pub use self::active_job::CancelReason;
pub use self::context::JobContext;
pub use self::error::WorkerError;
pub use self::handler::{BatchHandler, BoxFuture, Handler, JobItem, NeededState, State, StateSource};
pub use self::middleware::{Middleware, Next};
pub(crate) use self::outcome::ClassifyFunction;
pub use self::outcome::{Classifier, HandlerError, IntoOutcome, JobOutcome};
pub use self::report::{RunEnd, RunReport, WorkerEvent, WorkerReport};
pub use self::shutdown::WorkerShutdown;

use self::batch::BatchLimits;
use self::core::{HandlerSet, SlotGroup, TypeHandler, WorkerCore};
use self::dispatch::JobDispatcher;
use self::error::TYPES_MAX;
use self::handler::AnyHandler;
use self::keeper::LeaseKeeper;
use self::report::{EventFunction, Reporter};
use self::shutdown::StopRequests;
use crate::client::Client;
use crate::error::BadUrl;
use crate::job::Job;
use crate::schedules::{ScheduleRequest, ScheduleTime};
use crate::submit::JobRequest;

/// Options of a worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerOptions {
    name: String,
    version: Option<String>,
    queues: Vec<String>,
    slots: usize,
    prefetch_percent: usize,
    lease: Option<Duration>,
    execution_timeout: Option<Duration>,
    wait: Duration,
    grace: Duration,
    cancel_after: Option<Duration>,
    release_grace: Duration,
    stuck_grace: Duration,
    stuck_max: Option<u64>,
    max_jobs: Option<u64>,
    until_empty: bool,
    handle_signals: bool,
}

impl WorkerOptions {
    /// When the tokens fire after a drain has begun.
    fn cancel_after(&self) -> Duration {
        self.cancel_after.unwrap_or(self.grace * 3 / 4).min(self.grace)
    }
}

/// Builds a handler once the worker runs.
type HandlerFactory = Box<dyn FnOnce(&StateSource) -> Arc<dyn AnyHandler> + Send>;

/// A handler of one type, or of several types.
struct Registration {
    types: Vec<String>,
    /// Default queue of the job type.
    queue: Option<&'static str>,
    states: Vec<NeededState>,
    /// Slots of a batch handler; others share those of the worker.
    batch_slots: Option<usize>,
    create: HandlerFactory,
}

/// A worker: claims jobs and runs a handler for each.
///
/// ```no_run
/// use longshore::{HandlerError, Job, JobContext, Worker};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "email.send", queue = "mail")]
/// struct SendEmail { to: String }
///
/// async fn send(_: JobContext, mail: SendEmail) -> Result<(), HandlerError> {
///     println!("sending to {}", mail.to);
///     Ok(())
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let report = Worker::connect("http://127.0.0.1:7070")?.on(send).handle_signals().run().await?;
/// println!("{report}");
/// # Ok(())
/// # }
/// ```
///
/// [`Worker::run`] must be called on a tokio runtime. Heartbeats have a thread of their own: a
/// handler that blocks the runtime does not lose its lease.
pub struct Worker {
    client: Client,
    options: WorkerOptions,
    states: StateMap,
    registrations: Vec<Registration>,
    middleware: Vec<Arc<dyn Middleware>>,
    schedules: Vec<ScheduleRequest>,
    classify: Option<ClassifyFunction>,
    observe: Option<EventFunction>,
    stop: Arc<parking_lot::Mutex<StopRequests>>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Worker {
    /// Returns a worker of the server at `url`.
    pub fn connect(url: &str) -> Result<Self, BadUrl> {
        Client::new(url).map(Self::new)
    }

    /// Returns a worker of the server in the variable `LONGSHORE_SERVER`, or of
    /// `http://127.0.0.1:7070` without it.
    pub fn from_env() -> Result<Self, BadUrl> {
        Client::from_env().map(Self::new)
    }

    /// Returns a worker that uses this client.
    pub fn new(client: Client) -> Self {
        let options = WorkerOptions {
            name: default_name(),
            version: None,
            queues: Vec::new(),
            slots: 16,
            prefetch_percent: 100,
            lease: None,
            execution_timeout: None,
            wait: Duration::from_secs(20),
            grace: Duration::from_secs(25),
            cancel_after: None,
            release_grace: Duration::from_millis(500),
            stuck_grace: Duration::from_secs(30),
            stuck_max: None,
            max_jobs: None,
            until_empty: false,
            handle_signals: false,
        };
        Self {
            client,
            options,
            states: StateMap::default(),
            registrations: Vec::new(),
            middleware: Vec::new(),
            schedules: Vec::new(),
            classify: None,
            observe: None,
            stop: Arc::default(),
        }
    }

    /// Adds a handler. Its job type comes from its payload type.
    #[must_use]
    pub fn on<M: 'static, H: Handler<M>>(mut self, handler: H) -> Self {
        self.registrations.push(Registration {
            types: vec![H::Payload::TYPE.to_owned()],
            queue: Some(H::Payload::QUEUE),
            states: H::states(),
            batch_slots: None,
            create: Box::new(|_| erase(handler)),
        });
        self
    }

    /// Adds a handler that gets up to `size` jobs at once, or those of `wait` after the first. It
    /// returns one outcome per job, in the same order. Its jobs have slots of their own: twice
    /// `size`, so that the next batch is collected while one runs.
    #[must_use]
    pub fn on_batch<M: 'static, H: BatchHandler<M>>(mut self, size: usize, wait: Duration, handler: H) -> Self {
        let limits = BatchLimits { size: size.max(1), wait };
        self.registrations.push(Registration {
            types: vec![H::Payload::TYPE.to_owned()],
            queue: Some(H::Payload::QUEUE),
            states: H::states(),
            batch_slots: Some(limits.size * 2),
            create: Box::new(move |states| batch::collect(handler, limits, states.clone())),
        });
        self
    }

    /// Adds a handler of the given types that decodes its payload itself. Without types it gets
    /// the jobs of all types that have no other handler, and the worker claims every type.
    #[must_use]
    pub fn on_types<F, R>(mut self, types: impl IntoIterator<Item = impl Into<String>>, handler: F) -> Self
    where
        F: Fn(JobContext) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        let handler = move |context: JobContext| -> BoxFuture<'static, JobOutcome> {
            let run = handler(context.clone());
            Box::pin(async move { run.await.classified_outcome(context.classifier()) })
        };
        self.registrations.push(Registration {
            types: types.into_iter().map(Into::into).collect(),
            queue: None,
            states: Vec::new(),
            batch_slots: None,
            create: Box::new(|_| Arc::new(handler)),
        });
        self
    }

    /// Adds a shared state. Handlers get it as an argument [`State<T>`](State).
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Adds middleware. The first one is the outermost.
    #[must_use]
    pub fn layer(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Creates or replaces a schedule when the worker starts. An equal one changes nothing: every
    /// start of every worker may do it.
    #[must_use]
    pub fn schedule(self, name: impl Into<String>, time: impl Into<ScheduleTime>, job: JobRequest) -> Self {
        self.add_schedule(ScheduleRequest::new(name, time, job))
    }

    /// As [`Worker::schedule`], with a time zone and other options.
    #[must_use]
    pub fn add_schedule(mut self, schedule: ScheduleRequest) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// Sets the outcome of errors that `?` converts in a handler. The function gets the error, for
    /// `downcast_ref`, and returns `None` for a temporary failure.
    #[must_use]
    pub fn classify(
        mut self,
        classify: impl Fn(&(dyn std::error::Error + 'static)) -> Option<HandlerError> + Send + Sync + 'static,
    ) -> Self {
        self.classify = Some(Arc::new(classify));
        self
    }

    /// Calls a function for each event. Without it events are logged by `tracing`.
    #[must_use]
    pub fn observe(mut self, observe: impl Fn(&WorkerEvent<'_>) + Send + Sync + 'static) -> Self {
        self.observe = Some(Arc::new(observe));
        self
    }

    /// Name of the worker, for people and directives. Default: host and process id.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Version of the application, shown in the list of workers. Default: none.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.options.version = Some(version.into());
        self
    }

    /// Adds a queue to claim from; the first has preference. Default: the queues of the job types.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.options.queues.push(queue.into());
        self
    }

    /// Handlers that run at the same time, without batch handlers. Default: 16.
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.options.slots = slots.max(1);
        self
    }

    /// Jobs that a claim asks for, per free slot: 2.0 claims twice as many. Useful for short jobs.
    /// A job that waits for half of its lease is released. Default: 1.0.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 100..=10_000")]
    pub fn prefetch(mut self, factor: f64) -> Self {
        self.options.prefetch_percent = (factor * 100.0).clamp(100.0, 10_000.0) as usize;
        self
    }

    /// Lease of claimed jobs, instead of their setting.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = Some(lease);
        self
    }

    /// Longest run of a handler; a job may have a shorter one.
    #[must_use]
    pub fn execution_timeout(mut self, timeout: Duration) -> Self {
        self.options.execution_timeout = Some(timeout);
        self
    }

    /// Time that a claim waits for jobs. Default: 20 s.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = wait;
        self
    }

    /// Time from the first signal until the remaining jobs are released. Default: 25 s, below the
    /// 30 s of Kubernetes. At three quarters of it the tokens fire with [`CancelReason::Drain`].
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = grace;
        self
    }

    /// Time from the first signal until the tokens fire, instead of three quarters of the grace.
    #[must_use]
    pub fn cancel_after(mut self, delay: Duration) -> Self {
        self.options.cancel_after = Some(delay);
        self
    }

    /// Time from the second signal until the jobs are released. Default: 0.5 s.
    #[must_use]
    pub fn release_grace(mut self, grace: Duration) -> Self {
        self.options.release_grace = grace;
        self
    }

    /// Time after its deadline until a handler is abandoned. Default: 30 s.
    #[must_use]
    pub fn stuck_grace(mut self, grace: Duration) -> Self {
        self.options.stuck_grace = grace;
        self
    }

    /// Drains the worker after this many abandoned handlers. [`Worker::run`] then returns
    /// [`WorkerError::StuckHandlers`]: a program that returns it from `main` has exit code 1, and a
    /// supervisor restarts it.
    #[must_use]
    pub fn stuck_max(mut self, most: u64) -> Self {
        self.options.stuck_max = Some(most);
        self
    }

    /// Ends the worker after this many jobs.
    #[must_use]
    pub fn max_jobs(mut self, most: u64) -> Self {
        self.options.max_jobs = Some(most);
        self
    }

    /// Ends the worker when no job is ready.
    #[must_use]
    pub fn until_empty(mut self) -> Self {
        self.options.until_empty = true;
        self
    }

    /// Handles SIGTERM and SIGINT: the first drains, the second releases all jobs, the third exits
    /// with code 128 + signal. So does one after the last such worker has ended. A program with
    /// handlers of its own calls [`Worker::shutdown`] from them instead.
    #[must_use]
    pub fn handle_signals(mut self) -> Self {
        self.options.handle_signals = true;
        self
    }

    /// Returns a handle that stops the worker from elsewhere.
    pub fn shutdown(&self) -> WorkerShutdown {
        WorkerShutdown(Arc::clone(&self.stop))
    }

    /// Runs until a signal, a [`WorkerShutdown`] or the server stops it, and all jobs are settled.
    ///
    /// If the future is dropped before, running handlers are aborted and their jobs released, for
    /// up to 3 s and on a thread of its own. So are the jobs of a claim that is on its way.
    pub async fn run(mut self) -> Result<WorkerReport, WorkerError> {
        let stop = Arc::clone(&self.stop);
        let schedules = std::mem::take(&mut self.schedules);
        let core = Arc::new(self.into_core()?);
        stop.lock().attach(&core);
        let keeper = LeaseKeeper::start(&core).map_err(WorkerError::Start)?;
        let ended = KeeperEnd { core: Arc::clone(&core) };
        let result = match core.put_schedules(schedules).await {
            Ok(()) => JobDispatcher::new(Arc::clone(&core)).run().await.map_err(WorkerError::Refused),
            Err(error) => Err(error),
        };
        core.is_finished.store(true, Ordering::Release);
        drop(ended);
        // The thread is at most a request away from its end. A panic there has been logged.
        drop(tokio::task::spawn_blocking(move || keeper.join()).await);
        let report = core.reporter.report();
        core.reporter.emit(&WorkerEvent::Ended(report));
        result?;
        if core.is_stuck.load(Ordering::Acquire) {
            return Err(WorkerError::StuckHandlers { report });
        }
        Ok(report)
    }

    fn into_core(self) -> Result<WorkerCore, WorkerError> {
        let Self { client, mut options, states, registrations, middleware, classify, observe, .. } = self;
        if registrations.is_empty() {
            return Err(WorkerError::NoHandler);
        }
        let states = Arc::new(states);
        let source = StateSource { states: Arc::clone(&states), classify: classify.clone() };
        let (handlers, groups, queues) = build_handlers(registrations, &source, options.slots)?;
        if options.queues.is_empty() {
            options.queues = queues.into_iter().map(str::to_owned).collect();
        }
        if options.queues.is_empty() {
            options.queues.push("default".to_owned());
        }
        let table = Arc::new(JobTable::new(groups.len()));
        let context = Arc::new(ContextShared { states, classify, table, client, is_offline: false });
        Ok(WorkerCore::new(options, context, (handlers, groups), middleware, Reporter::new(observe)))
    }
}

/// Handlers by type, groups of slots, and the queues of the job types.
type HandlerParts = (HandlerSet, Vec<SlotGroup>, Vec<&'static str>);

fn build_handlers(
    registrations: Vec<Registration>,
    source: &StateSource,
    slots: usize,
) -> Result<HandlerParts, WorkerError> {
    let mut handlers = HandlerSet::default();
    let mut queues = Vec::new();
    // The first group belongs to all handlers that are no batch handlers.
    let mut groups = vec![SlotGroup { slots, types: Vec::new() }];
    for registration in registrations {
        let Registration { types, queue, states: needed, batch_slots, create } = registration;
        let job_type = types.first().cloned().unwrap_or_else(|| "*".to_owned());
        if let Some(missing) = needed.into_iter().find(|key| !source.states.has(*key)) {
            return Err(WorkerError::MissingState { job_type, state: missing.name });
        }
        queues.extend(queue.filter(|queue| !queues.contains(queue)));
        let group = if batch_slots.is_some() { groups.len() } else { 0 };
        groups.extend(batch_slots.map(|slots| SlotGroup { slots, types: types.clone() }));
        let found = TypeHandler { handler: create(source), group };
        if types.is_empty() && handlers.fallback.replace(found.clone()).is_some() {
            return Err(WorkerError::DuplicateHandler { job_type });
        }
        for job_type in types {
            if handlers.by_type.insert(job_type.clone(), found.clone()).is_some() {
                return Err(WorkerError::DuplicateHandler { job_type });
            }
        }
    }
    let plain = handlers.by_type.iter().filter(|(_, found)| found.group == 0);
    let mut plain: Vec<String> = plain.map(|(job_type, _)| job_type.clone()).collect();
    plain.sort_unstable();
    if plain.len() > TYPES_MAX && handlers.fallback.is_none() {
        return Err(WorkerError::TooManyTypes { count: plain.len() });
    }
    match (handlers.fallback.is_some(), groups.first_mut()) {
        (false, Some(first)) if plain.is_empty() => first.slots = 0,
        (false, Some(first)) => first.types = plain,
        (true, _) | (false, None) => {}
    }
    Ok((handlers, groups, queues))
}

/// Ends the lease keeper, also if `run` is dropped.
struct KeeperEnd {
    core: Arc<WorkerCore>,
}

impl Drop for KeeperEnd {
    fn drop(&mut self) {
        if !self.core.is_finished.load(Ordering::Acquire) {
            self.core.is_dropped.store(true, Ordering::Release);
            self.core.release_now();
        }
        signals::leave(&self.core);
        self.core.table.keeper_wake.notify_one();
    }
}

/// Host and process id.
fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    let host: String = host.unwrap_or_default().trim().chars().take(64).collect();
    format!("{}-{}", if host.is_empty() { "worker" } else { &host }, std::process::id())
}

/// Rounds up to milliseconds, the unit of the wire.
pub(crate) fn wire_duration(length: Duration) -> longshore_api::Duration {
    let millis = length.as_nanos().div_ceil(1_000_000);
    longshore_api::Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).min(longshore_api::Duration::MAX)
}

/// A claimed job for tests, and for the test kit.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn sample_job() -> longshore_api::work::ClaimedJob {
    use longshore_api::enums::{Priority, State as JobStateKind};
    use longshore_api::work::{ClaimedJob, Lease};
    ClaimedJob {
        id: "00000000-0000-4000-8000-000000000000".to_owned(),
        seq: 1,
        queue: "default".to_owned(),
        job_type: "test".to_owned(),
        state: JobStateKind::Running,
        priority: Priority::Normal,
        attempt: 1,
        attempt_id: None,
        previous_attempt_id: None,
        tags: longshore_api::tags::TagMap::new(),
        correlation_id: None,
        traceparent: None,
        idempotency_key: None,
        created_at: longshore_api::Time(0),
        deadline_at: None,
        checkpoint: None,
        workflow: None,
        payload: None,
        payload_base64: None,
        lease: Lease { token: "token".to_owned(), version: 1, expires_at: None, duration: None },
        last_attempt: false,
    }
}
