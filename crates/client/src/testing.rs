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
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;

use crate::client::Client;
use crate::embedded::Longshore;
use crate::error::Error;
use crate::job::Job;
use crate::query::JobListQuery;
use crate::worker::{
    ActiveJob, ContextShared, Handler, JobContext, JobOutcome, JobTable, StateMap, Worker, WorkerReport, sample_job,
    wire_duration,
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

/// Which attempt [`run_once`] pretends to be.
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

/// Runs a handler once, without a queue. Returns its outcome. The context has no server: its
/// requests fail.
pub async fn run_once<M, H: Handler<M>>(handler: &H, payload: H::Payload, attempt: AttemptNumber) -> JobOutcome {
    let mut job = sample_job();
    H::Payload::TYPE.clone_into(&mut job.job_type);
    H::Payload::QUEUE.clone_into(&mut job.queue);
    job.attempt = attempt.number;
    job.last_attempt = attempt.is_last;
    job.payload = to_raw_value(&payload).ok();
    let client = Client::builder().build_in_process(|| Err(std::io::ErrorKind::ConnectionRefused.into()));
    let shared = ContextShared { states: Arc::new(StateMap::default()), table: Arc::new(JobTable::new(1)), client };
    let active = Arc::new(ActiveJob::new(0, 0, job, Duration::ZERO, Time(0)));
    handler.call(JobContext { active, shared: Arc::new(shared) }, payload).await
}
