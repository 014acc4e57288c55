//! Test kit: a queue in memory with a virtual clock. Retries and delays of hours run in
//! milliseconds.
//!
//! ```
//! use std::time::Duration;
//! use longshore::testing::TestQueue;
//! use longshore::{HandlerError, Job, JobContext};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Job)]
//! #[job(type = "call.api")]
//! struct CallApi { url: String }
//!
//! /// Fails twice.
//! async fn call(context: JobContext, _: CallApi) -> Result<u32, HandlerError> {
//!     if context.attempt() < 3 {
//!         return Err(HandlerError::temporary("unavailable"));
//!     }
//!     Ok(context.attempt())
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let mut queue = TestQueue::new().await;
//! queue.on(call);
//! let job = queue.client().submit(CallApi { url: "http://example.com".into() }).await.unwrap();
//! for _ in 0..3 {
//!     queue.drain().await;
//!     queue.advance(Duration::from_secs(3600)).await;
//! }
//! assert_eq!(job.wait().await.unwrap(), 3);
//! # });
//! ```

use std::sync::Arc;
use std::time::Duration;

use longshore_api::Time;
use longshore_api::job::Job as JobRecord;
use longshore_api::work::ClaimedJob;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use crate::client::Client;
use crate::embedded::Longshore;
use crate::error::Error;
use crate::job::Job;
use crate::query::JobListQuery;
use crate::worker::{
    ActiveJob, BatchHandler, CancelReason, ClassifyFunction, ContextShared, Handler, HandlerError, IntoOutcome,
    JobContext, JobItem, JobOutcome, JobTable, Middleware, Next, StateMap, StateSource, Worker, WorkerReport, erase,
    sample_job, wire_duration,
};

/// Adds a handler or a state to a worker.
type Setup = Box<dyn Fn(Worker) -> Worker + Send>;

/// A queue in memory with a virtual clock, and the handlers under test.
pub struct TestQueue {
    queue: Longshore,
    setup: Vec<Setup>,
}

impl std::fmt::Debug for TestQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestQueue")
    }
}

/// Stops the test with a message.
#[expect(clippy::panic, reason = "a test kit reports by a panic, as `assert!` does")]
#[track_caller]
fn fail(what: &str, why: &dyn std::fmt::Display) -> ! {
    panic!("{what}: {why}")
}

impl TestQueue {
    /// Panics if the store cannot be opened.
    pub async fn new() -> Self {
        match Longshore::in_virtual_time().await {
            Ok(queue) => Self { queue, setup: Vec::new() },
            Err(error) => fail("cannot start the test queue", &error),
        }
    }

    pub fn client(&self) -> Client {
        self.queue.client()
    }

    /// Adds a handler for [`TestQueue::drain`].
    pub fn on<M: 'static, H: Handler<M> + Clone>(&mut self, handler: H) -> &mut Self {
        self.setup.push(Box::new(move |worker| worker.on(handler.clone())));
        self
    }

    /// Adds a state for the handlers.
    pub fn state<T: Clone + Send + Sync + 'static>(&mut self, state: T) -> &mut Self {
        self.setup.push(Box::new(move |worker| worker.state(state.clone())));
        self
    }

    /// Adds a batch handler.
    pub fn on_batch<M: 'static, H: BatchHandler<M> + Clone>(
        &mut self,
        size: usize,
        wait: Duration,
        handler: H,
    ) -> &mut Self {
        self.setup.push(Box::new(move |worker| worker.on_batch(size, wait, handler.clone())));
        self
    }

    /// Adds a handler of the given types that decodes its payload itself.
    pub fn on_types<F, R>(&mut self, types: impl IntoIterator<Item = impl Into<String>>, handler: F) -> &mut Self
    where
        F: Fn(JobContext) -> R + Clone + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        let types: Vec<String> = types.into_iter().map(Into::into).collect();
        self.setup.push(Box::new(move |worker| worker.on_types(types.clone(), handler.clone())));
        self
    }

    /// Adds middleware.
    pub fn layer(&mut self, middleware: impl Middleware + Clone) -> &mut Self {
        self.setup.push(Box::new(move |worker| worker.layer(middleware.clone())));
        self
    }

    /// Adds any other option of a worker, such as `classify`.
    pub fn configure(&mut self, configure: impl Fn(Worker) -> Worker + Send + 'static) -> &mut Self {
        self.setup.push(Box::new(configure));
        self
    }

    /// Runs jobs until none is ready. Retries and delayed jobs wait for [`TestQueue::advance`].
    pub async fn drain(&self) -> WorkerReport {
        let queues = match self.client().queues().await {
            Ok(queues) => queues.queues,
            Err(error) => fail("cannot list the queues", &error),
        };
        let mut worker = self.queue.worker().until_empty();
        for queue in queues {
            worker = worker.queue(queue.name);
        }
        for setup in &self.setup {
            worker = setup(worker);
        }
        match worker.run().await {
            Ok(report) => report,
            Err(error) => fail("cannot drain the test queue", &error),
        }
    }

    /// Advances the clock. Everything that falls due on the way happens at its own instant.
    pub async fn advance(&self, by: Duration) {
        if let Err(error) = self.client().advance(wire_duration(by)).await {
            fail("cannot advance the clock", &error);
        }
    }

    /// Returns the payloads of all jobs of a type, oldest first.
    pub async fn submitted<J: Job + DeserializeOwned>(&self) -> Vec<J> {
        match self.find::<J>().await {
            Ok(jobs) => jobs.iter().filter_map(decode).collect(),
            Err(error) => fail("cannot list the jobs", &error),
        }
    }

    /// Panics unless a job of the type was submitted whose payload satisfies the predicate.
    pub async fn assert_submitted<J: Job + DeserializeOwned>(&self, is_expected: impl Fn(&J) -> bool) {
        let jobs = self.submitted::<J>().await;
        if !jobs.iter().any(is_expected) {
            let found = format!("{} jobs of this type, none as expected", jobs.len());
            fail(&format!("no job {:?} was submitted", J::TYPE), &found);
        }
    }

    async fn find<J: Job>(&self) -> Result<Vec<JobRecord>, Error> {
        let mut found = Vec::new();
        let mut query = JobListQuery { job_type: Some(J::TYPE.to_owned()), ..JobListQuery::default() };
        loop {
            let page = self.client().jobs(&query).await?;
            for job in page.jobs {
                found.push(self.client().job_with_payload(&job.id).await?);
            }
            query.cursor = page.next;
            if query.cursor.is_none() {
                found.reverse();
                return Ok(found);
            }
        }
    }
}

fn decode<J: Job + DeserializeOwned>(job: &JobRecord) -> Option<J> {
    serde_json::from_str(job.payload.as_ref()?.get()).ok()
}

/// Which attempt [`HandlerTest`] and [`run_once`] pretend to be.
#[derive(Clone, Copy, Debug)]
pub struct AttemptNumber {
    number: u32,
    is_last: bool,
}

impl AttemptNumber {
    pub fn nth(number: u32) -> Self {
        Self { number, is_last: false }
    }

    /// A failure of this attempt would end the job.
    pub fn last(number: u32) -> Self {
        Self { number, is_last: true }
    }
}

/// What a handler gets that runs once, without a queue: see [`HandlerTest::run`].
///
/// ```
/// use longshore::testing::{AttemptNumber, HandlerTest};
/// use longshore::{HandlerError, Job, JobContext, JobOutcome, State};
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(type = "count")]
/// # struct Count;
/// async fn count(context: JobContext, _: Count, step: State<u32>) -> Result<u32, HandlerError> {
///     Ok(context.checkpoint::<u32>().unwrap_or(0) + *step)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let test = HandlerTest::new().attempt(AttemptNumber::nth(2)).state(3_u32).checkpoint(&40);
/// let run = test.run(count, Count).await;
/// assert!(matches!(run.outcome, JobOutcome::Complete(Some(json)) if json.get() == "43"));
/// # });
/// ```
#[must_use]
pub struct HandlerTest {
    job: ClaimedJob,
    states: StateMap,
    middleware: Vec<Arc<dyn Middleware>>,
    classify: Option<ClassifyFunction>,
    reason: Option<CancelReason>,
}

impl std::fmt::Debug for HandlerTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandlerTest").field("job", &self.job).finish_non_exhaustive()
    }
}

impl Default for HandlerTest {
    fn default() -> Self {
        Self::new()
    }
}

/// What a handler has done in a test.
#[derive(Clone, Debug)]
pub struct HandlerRun {
    pub outcome: JobOutcome,
    /// The last checkpoint, also one that the test has set.
    pub checkpoint: Option<Box<RawValue>>,
    pub progress: Option<Box<RawValue>>,
}

impl HandlerTest {
    /// The first attempt of a job, without a state.
    pub fn new() -> Self {
        let (states, middleware) = (StateMap::default(), Vec::new());
        Self { job: sample_job(), states, middleware, classify: None, reason: None }
    }

    /// Number of the attempt.
    pub fn attempt(mut self, attempt: AttemptNumber) -> Self {
        self.job.attempt = attempt.number;
        self.job.last_attempt = attempt.is_last;
        self
    }

    /// Adds a state of the worker.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Checkpoint of an earlier attempt.
    pub fn checkpoint(mut self, checkpoint: &impl Serialize) -> Self {
        self.job.checkpoint = to_raw_value(checkpoint).ok();
        self
    }

    /// Adds a tag of the job.
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.job.tags.insert(key.into(), Some(value.into()));
        self
    }

    /// Fires the token before the handler starts.
    pub fn cancelled(mut self, reason: CancelReason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Adds middleware. The first one is the outermost.
    pub fn layer(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Sets the outcome of errors that `?` converts.
    pub fn classify(
        mut self,
        classify: impl Fn(&(dyn std::error::Error + 'static)) -> Option<HandlerError> + Send + Sync + 'static,
    ) -> Self {
        self.classify = Some(Arc::new(classify));
        self
    }

    /// Runs the handler. Checkpoints are stored in the test; other requests of the context fail.
    pub async fn run<M: 'static, H: Handler<M>>(mut self, handler: H, payload: H::Payload) -> HandlerRun {
        H::Payload::TYPE.clone_into(&mut self.job.job_type);
        H::Payload::QUEUE.clone_into(&mut self.job.queue);
        self.job.payload = to_raw_value(&payload).ok();
        let middleware = std::mem::take(&mut self.middleware);
        let context = self.into_context();
        let active = Arc::clone(&context.active);
        let handler = erase(handler);
        let outcome = Next { rest: &middleware, handler: &handler }.run(context).await;
        let checkpoint = active.checkpoint.lock().take();
        let progress = active.notes.lock().progress.take();
        HandlerRun { outcome, checkpoint, progress }
    }

    /// Runs a batch handler with these jobs. Returns their outcomes.
    pub async fn run_batch<M: 'static, H: BatchHandler<M>>(
        mut self,
        handler: H,
        payloads: impl IntoIterator<Item = H::Payload>,
    ) -> Vec<JobOutcome> {
        H::Payload::TYPE.clone_into(&mut self.job.job_type);
        H::Payload::QUEUE.clone_into(&mut self.job.queue);
        let states = StateSource { states: Arc::new(self.states.clone()), classify: self.classify.clone() };
        let context = self.into_context();
        let items = payloads.into_iter().map(|payload| JobItem { context: context.clone(), payload }).collect();
        handler.call(&states, items).await
    }

    fn into_context(self) -> JobContext {
        let client = Client::builder().build_in_process(|| Err(std::io::ErrorKind::ConnectionRefused.into()));
        let (states, table) = (Arc::new(self.states), Arc::new(JobTable::new(1)));
        let shared = ContextShared { states, classify: self.classify, table, client, is_offline: true };
        let active = Arc::new(ActiveJob::new(0, 0, self.job, Duration::ZERO, Time(0)));
        if let Some(reason) = self.reason {
            active.token.fire(reason);
        }
        JobContext { active, shared: Arc::new(shared) }
    }
}

/// Runs a handler without a state once, without a queue. Returns its outcome.
pub async fn run_once<M: 'static, H: Handler<M> + Clone>(
    handler: &H,
    payload: H::Payload,
    attempt: AttemptNumber,
) -> JobOutcome {
    HandlerTest::new().attempt(attempt).run(handler.clone(), payload).await.outcome
}
