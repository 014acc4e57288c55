//! Typed submissions: one job, many jobs, workflows; retries; handles of jobs.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use longshore_api::enums::{Priority, State};
use longshore_api::job::{ErrorView, NewJob, Submitted};
use longshore_api::settings::Retry;
use longshore_api::tags::Tags;
use longshore_api::work::JobState;
use longshore_api::workflow::{Chord, NewWorkflow, WorkflowCreated};
use longshore_api::{ErrorCode, RetryAdvice, Time, admin};
use serde_json::value::to_raw_value;

use crate::client::Client;
use crate::clock::monotonic;
use crate::error::Error;
use crate::job::Job;
use crate::random::{BackoffTimer, new_key};
use crate::worker::{BoxFuture, wire_duration};

/// Most jobs of one request.
const BATCH_MAX: usize = 1_000;
/// Longest wait of one request for the end of a job.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A job to submit, with its options. [`Client::submit`] makes one for a single job; several go to
/// [`Client::submit_all`] or into a [`WorkflowRequest`].
#[derive(Clone, Debug)]
pub struct JobRequest {
    queue: String,
    job: NewJob,
    /// Set if the payload cannot be written as JSON.
    error: Option<String>,
}

impl JobRequest {
    pub fn new<J: Job>(job: &J) -> Self {
        let (payload, error) = match to_raw_value(job) {
            Ok(payload) => (Some(payload), None),
            Err(error) => (None, Some(format!("the payload of {} cannot be written as JSON: {error}", J::TYPE))),
        };
        let job = NewJob { job_type: J::TYPE.to_owned(), payload, ..NewJob::default() };
        Self { queue: J::QUEUE.to_owned(), job, error }
    }

    /// Type of the job.
    pub fn job_type(&self) -> &str {
        &self.job.job_type
    }

    /// The job on the wire, with its queue inside, as workflows and children need it.
    fn into_member(self) -> Result<NewJob, Error> {
        match self.error {
            Some(error) => Err(Error::InvalidRequest(error)),
            None => Ok(NewJob { queue: Some(self.queue), ..self.job }),
        }
    }

    pub(crate) fn into_parts(self) -> Result<(String, NewJob), Error> {
        match self.error {
            Some(error) => Err(Error::InvalidRequest(error)),
            None => Ok((self.queue, self.job)),
        }
    }
}

/// Jobs on the wire, from requests.
pub(crate) fn members(requests: impl IntoIterator<Item = JobRequest>) -> Result<Vec<NewJob>, Error> {
    requests.into_iter().map(JobRequest::into_member).collect()
}

/// A submission of one job: options, then `.await`.
///
/// Without a key of its own it gets a random one, so that a request whose response is lost can be
/// repeated without a second job.
#[must_use = "a submission does nothing unless it is awaited"]
pub struct Submit<J> {
    client: Client,
    request: JobRequest,
    job: PhantomData<fn() -> J>,
}

impl<J> fmt::Debug for Submit<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submit").field("queue", &self.request.queue).finish_non_exhaustive()
    }
}

/// The options of a job, for [`JobRequest`] and [`Submit`].
macro_rules! job_options {
    ($($target:ident)*) => {
        /// Queue, instead of that of the job type.
        pub fn queue(mut self, queue: impl Into<String>) -> Self {
            self$(.$target)*.queue = queue.into();
            self
        }

        /// Wait before the job is ready.
        pub fn delay(mut self, delay: Duration) -> Self {
            self$(.$target)*.job.delay = Some(wire_duration(delay));
            self
        }

        /// Time before which the job is not ready.
        pub fn run_at(mut self, at: Time) -> Self {
            self$(.$target)*.job.run_at = Some(at);
            self
        }

        /// Idempotency key: a second submission with it returns the first job.
        pub fn key(mut self, key: impl Into<String>) -> Self {
            self$(.$target)*.job.idempotency_key = Some(key.into());
            self
        }

        pub fn priority(mut self, priority: Priority) -> Self {
            self$(.$target)*.job.priority = Some(priority);
            self
        }

        /// Adds a label for searching.
        pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
            let tags = self$(.$target)*.job.tags.get_or_insert_with(|| Tags::Map(Default::default()));
            if let Tags::Map(tags) = tags {
                tags.insert(key.into(), Some(value.into()));
            }
            self
        }

        /// Id that connects the job with other systems.
        pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
            self$(.$target)*.job.correlation_id = Some(id.into());
            self
        }

        /// W3C trace context of the caller: the handler reads it from its context.
        pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
            self$(.$target)*.job.traceparent = Some(traceparent.into());
            self
        }

        /// URL that the server calls when the job has ended.
        pub fn callback_url(mut self, url: impl Into<String>) -> Self {
            self$(.$target)*.job.callback_url = Some(url.into());
            self
        }

        /// Adds a job that must complete first: an id, or `#name` of a job in the same request.
        pub fn after(mut self, id: impl Into<String>) -> Self {
            self$(.$target)*.job.after.get_or_insert_default().push(id.into());
            self
        }

        /// Name of the job inside its batch or workflow, for `after("#name")`.
        pub fn reference(mut self, name: impl Into<String>) -> Self {
            self$(.$target)*.job.reference = Some(name.into());
            self
        }

        /// Overrides the retry policy of the queue.
        pub fn retry(mut self, retry: Retry) -> Self {
            self$(.$target)*.job.retry = Some(retry);
            self
        }

        /// Longest run of a handler.
        pub fn execution_timeout(mut self, timeout: Duration) -> Self {
            self$(.$target)*.job.execution_timeout = Some(wire_duration(timeout));
            self
        }

        /// Lease of a claim, which heartbeats extend.
        pub fn lease(mut self, lease: Duration) -> Self {
            self$(.$target)*.job.lease = Some(wire_duration(lease));
            self
        }

        /// Longest time from the submission to the end.
        pub fn lifetime(mut self, lifetime: Duration) -> Self {
            self$(.$target)*.job.lifetime = Some(wire_duration(lifetime));
            self
        }

        /// Keeps the job pending until [`Client::submit_held`].
        pub fn hold(mut self) -> Self {
            self$(.$target)*.job.hold = Some(true);
            self
        }
    };
}

impl JobRequest {
    job_options!();
}

impl<J> Submit<J> {
    job_options!(request);
}

impl<J: Job + 'static> IntoFuture for Submit<J> {
    type Output = Result<JobHandle<J>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { client, request, .. } = self;
            let (queue, job) = client.prepare(request).into_parts()?;
            let mut jobs = client.submit_with_retries(&queue, vec![job]).await?;
            let submitted = jobs.pop().ok_or_else(|| too_few(0))?;
            Ok(JobHandle { client, submitted, job: PhantomData })
        })
    }
}

fn too_few(count: usize) -> Error {
    let detail = format!("the response to a batch has {count} jobs too few");
    Error::UnexpectedResponse { status: 200, detail }
}

impl Client {
    /// Submits a job of a typed payload: `client.submit(SendEmail { … }).delay(…).await?`.
    #[expect(clippy::needless_pass_by_value, reason = "callers give the payload away: no `&` at each call")]
    pub fn submit<J: Job>(&self, job: J) -> Submit<J> {
        Submit { client: self.clone(), request: JobRequest::new(&job), job: PhantomData }
    }

    /// Submits many jobs, in requests of up to 1,000 to each queue. Each request is stored as a
    /// whole or not at all. Returns the results in the same order.
    pub async fn submit_all(&self, requests: impl IntoIterator<Item = JobRequest>) -> Result<Vec<Submitted>, Error> {
        let mut queues: Vec<(String, Vec<(usize, NewJob)>)> = Vec::new();
        let mut count = 0;
        for request in requests {
            let (queue, job) = self.prepare(request).into_parts()?;
            match queues.iter_mut().find(|(name, _)| *name == queue) {
                Some((_, jobs)) => jobs.push((count, job)),
                None => queues.push((queue, vec![(count, job)])),
            }
            count += 1;
        }
        let mut results: Vec<Option<Submitted>> = vec![None; count];
        for (queue, mut jobs) in queues {
            while !jobs.is_empty() {
                let rest = jobs.split_off(jobs.len().min(BATCH_MAX));
                let (indexes, batch): (Vec<_>, Vec<_>) = std::mem::replace(&mut jobs, rest).into_iter().unzip();
                for (index, submitted) in indexes.into_iter().zip(self.submit_with_retries(&queue, batch).await?) {
                    if let Some(result) = results.get_mut(index) {
                        *result = Some(submitted);
                    }
                }
            }
        }
        let found: Vec<_> = results.into_iter().flatten().collect();
        if found.len() == count { Ok(found) } else { Err(too_few(count - found.len())) }
    }

    /// Submits a workflow: all of its jobs, or none. Retries only what certainly was not stored.
    pub async fn start_workflow(&self, workflow: WorkflowRequest) -> Result<WorkflowCreated, Error> {
        let workflow = self.prepare_members(workflow.0?)?;
        self.retry_request(false, || self.submit_workflow(&workflow)).await
    }

    /// Returns what `before_submit` makes of a job.
    pub(crate) fn prepare(&self, request: JobRequest) -> JobRequest {
        match self.before_submit() {
            Some(before_submit) => before_submit(request),
            None => request,
        }
    }

    /// As `prepare`, for the job of a schedule: a trace belongs to one submission, so the hook adds
    /// none to it.
    pub(crate) fn prepare_scheduled(&self, request: JobRequest) -> JobRequest {
        let traceparent = request.job.traceparent.clone();
        let mut prepared = self.prepare(request);
        prepared.job.traceparent = traceparent;
        prepared
    }

    fn prepare_members(&self, workflow: NewWorkflow<NewJob>) -> Result<NewWorkflow<NewJob>, Error> {
        if self.before_submit().is_none() {
            return Ok(workflow);
        }
        let one = |mut job: NewJob| {
            let queue = job.queue.take().unwrap_or_default();
            self.prepare(JobRequest { queue, job, error: None }).into_member()
        };
        let all = |jobs: Vec<NewJob>| jobs.into_iter().map(one).collect::<Result<Vec<_>, _>>();
        let chord = |Chord { group, finally }| Ok(Chord { group: all(group)?, finally: one(finally)? });
        Ok(NewWorkflow {
            jobs: workflow.jobs.map(all).transpose()?,
            chain: workflow.chain.map(all).transpose()?,
            group: workflow.group.map(all).transpose()?,
            chord: workflow.chord.map(chord).transpose()?,
            ..workflow
        })
    }

    /// Submits jobs of one queue. Jobs without a key get a random one, so that a request with an
    /// unknown outcome can be repeated.
    async fn submit_with_retries(&self, queue: &str, mut jobs: Vec<NewJob>) -> Result<Vec<Submitted>, Error> {
        let mut generated = Vec::new();
        for (index, job) in jobs.iter_mut().enumerate() {
            if job.idempotency_key.is_none() {
                job.idempotency_key = new_key();
                generated.push(index);
            }
        }
        let has_keys = jobs.iter().all(|job| job.idempotency_key.is_some());
        match self.send_jobs(queue, &jobs, has_keys).await {
            // The queue accepts no keys: unknown outcomes cannot be repeated there.
            Err(error) if !generated.is_empty() && is_key_refused(&error) => {
                for index in generated {
                    if let Some(job) = jobs.get_mut(index) {
                        job.idempotency_key = None;
                    }
                }
                self.send_jobs(queue, &jobs, false).await
            }
            result => result,
        }
    }

    async fn send_jobs(&self, queue: &str, jobs: &[NewJob], has_keys: bool) -> Result<Vec<Submitted>, Error> {
        match jobs {
            [job] => self.retry_request(has_keys, || self.submit_job(queue, job)).await.map(|one| vec![one]),
            jobs => self.retry_request(has_keys, || self.submit_jobs(queue, jobs)).await.map(|batch| batch.jobs),
        }
    }

    /// Sends a request again while its error allows it, for up to the retry time of the client.
    pub(crate) async fn retry_request<T, F: Future<Output = Result<T, Error>>>(
        &self,
        has_keys: bool,
        send: impl Fn() -> F,
    ) -> Result<T, Error> {
        let until = monotonic() + self.retry_time();
        let mut backoff = BackoffTimer::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let error = match send().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let is_allowed = match error.retry() {
                RetryAdvice::Never => false,
                RetryAdvice::Safe => true,
                RetryAdvice::Unknown => has_keys,
            };
            let delay = backoff.next_delay_after(&error, Duration::MAX);
            if !is_allowed || monotonic() + delay >= until {
                return Err(error);
            }
            tokio::time::sleep(delay).await;
        }
    }
}

fn is_key_refused(error: &Error) -> bool {
    let field = error.problem().and_then(|problem| problem.field.as_deref());
    error.code() == Some(ErrorCode::Validation) && field.is_some_and(|field| field.ends_with("idempotency_key"))
}

/// A workflow to submit: a chain, a group, a chord, or jobs that name their dependencies.
///
/// ```
/// use longshore::{Job, JobRequest, WorkflowRequest};
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(type = "page.render")]
/// # struct Render { page: u32 }
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(type = "book.bind")]
/// # struct Bind;
/// let pages = (1..=3).map(|page| JobRequest::new(&Render { page }));
/// let workflow = WorkflowRequest::chord(pages, JobRequest::new(&Bind)).name("book");
/// ```
#[derive(Debug)]
#[must_use = "submit it with `Client::start_workflow`"]
pub struct WorkflowRequest(Result<NewWorkflow<NewJob>, Error>);

impl WorkflowRequest {
    fn build(
        jobs: impl IntoIterator<Item = JobRequest>,
        shape: impl FnOnce(&mut NewWorkflow<NewJob>, Vec<NewJob>),
    ) -> Self {
        let mut workflow =
            NewWorkflow { name: None, queue: None, open: None, jobs: None, chain: None, group: None, chord: None };
        Self(members(jobs).map(|jobs| {
            shape(&mut workflow, jobs);
            workflow
        }))
    }

    /// Jobs that run one after the other.
    pub fn chain(jobs: impl IntoIterator<Item = JobRequest>) -> Self {
        Self::build(jobs, |workflow, jobs| workflow.chain = Some(jobs))
    }

    /// Jobs that run in parallel.
    pub fn group(jobs: impl IntoIterator<Item = JobRequest>) -> Self {
        Self::build(jobs, |workflow, jobs| workflow.group = Some(jobs))
    }

    /// Jobs that name their dependencies by `reference` and `after("#name")`.
    pub fn graph(jobs: impl IntoIterator<Item = JobRequest>) -> Self {
        Self::build(jobs, |workflow, jobs| workflow.jobs = Some(jobs))
    }

    /// Jobs that run in parallel, and a job that runs after all of them have completed.
    pub fn chord(group: impl IntoIterator<Item = JobRequest>, finally: JobRequest) -> Self {
        let finally = match finally.into_member() {
            Ok(finally) => finally,
            Err(error) => return Self(Err(error)),
        };
        Self::build(group, |workflow, group| workflow.chord = Some(Chord { group, finally }))
    }

    /// Name of the workflow, for people.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        if let Ok(workflow) = &mut self.0 {
            workflow.name = Some(name.into());
        }
        self
    }
}

/// A submitted job.
pub struct JobHandle<J> {
    client: Client,
    submitted: Submitted,
    job: PhantomData<fn() -> J>,
}

impl<J> fmt::Debug for JobHandle<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JobHandle").field(&self.submitted).finish()
    }
}

/// Why there is no result of a job.
#[derive(Debug)]
pub enum WaitError {
    /// The job ended without completing.
    NotCompleted {
        state: State,
        error: Option<ErrorView>,
    },
    /// The result has another form than the output of the job type.
    BadResult(serde_json::Error),
    Request(Error),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCompleted { state, error: Some(error) } => {
                write!(f, "the job ended as {state}: {}", error.message)
            }
            Self::NotCompleted { state, error: None } => write!(f, "the job ended as {state}"),
            Self::BadResult(error) => write!(f, "the result has another form: {error}"),
            Self::Request(error) => write!(f, "cannot wait for the job: {error}"),
        }
    }
}

impl std::error::Error for WaitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotCompleted { .. } => None,
            Self::BadResult(error) => Some(error),
            Self::Request(error) => Some(error),
        }
    }
}

impl<J: Job> JobHandle<J> {
    pub fn id(&self) -> &str {
        &self.submitted.id
    }

    /// The response to the submission. `duplicate` says that the key was used before.
    pub fn submitted(&self) -> &Submitted {
        &self.submitted
    }

    /// Waits for the end of the job, and returns its result. Survives outages of the server.
    pub async fn wait(&self) -> Result<J::Output, WaitError> {
        let mut backoff = BackoffTimer::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match self.client.wait(self.id(), wire_duration(WAIT_MAX)).await {
                Ok(waited) if waited.ended => return output::<J>(waited.job),
                Ok(_) => backoff.reset(),
                Err(error) if error.retry() == RetryAdvice::Never => return Err(WaitError::Request(error)),
                Err(error) => tokio::time::sleep(backoff.next_delay_after(&error, WAIT_MAX)).await,
            }
        }
    }

    /// Cancels the job. A running one gets the request with its next heartbeat.
    pub async fn cancel(&self) -> Result<JobState, Error> {
        self.client.cancel(self.id(), &admin::Cancel::default()).await
    }
}

fn output<J: Job>(job: longshore_api::job::Job) -> Result<J::Output, WaitError> {
    if job.state != State::Completed {
        return Err(WaitError::NotCompleted { state: job.state, error: job.error });
    }
    let result = job.result.as_ref().map_or("null", |result| result.get());
    serde_json::from_str(result).map_err(WaitError::BadResult)
}
