//! What a handler gets besides its payload.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::tags::TagMap;
use longshore_api::work::{Children, ChildrenCreated, ClaimedJob};
use longshore_api::workflow::Inputs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::oneshot;

use super::active_job::{ActiveJob, CancelReason, JobTable};
use super::handler::{State, StateMap};
use super::outcome::{Classifier, ClassifyFunction, HandlerError};
use crate::client::Client;
use crate::clock::monotonic;
use crate::error::Error;
use crate::submit::{JobRequest, members};

/// The context of one run: the job, its lease, its cancellation token, the states of the worker.
#[derive(Clone)]
pub struct JobContext {
    pub(crate) active: Arc<ActiveJob>,
    pub(crate) shared: Arc<ContextShared>,
}

/// What all runs of a worker share.
pub(crate) struct ContextShared {
    pub(crate) states: Arc<StateMap>,
    pub(crate) classify: Option<ClassifyFunction>,
    pub(crate) table: Arc<JobTable>,
    pub(crate) client: Client,
    /// There is no server, as in a test of one handler: checkpoints are stored at once.
    pub(crate) is_offline: bool,
}

impl fmt::Debug for ContextShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextShared").field("states", &self.states).finish_non_exhaustive()
    }
}

/// Member of a checkpoint with the results of [`JobContext::step`].
const STEPS: &str = "$steps";

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext").field("id", &self.id()).field("attempt", &self.attempt()).finish_non_exhaustive()
    }
}

impl JobContext {
    /// The job as the server sent it.
    pub fn job(&self) -> &ClaimedJob {
        &self.active.job
    }

    pub fn id(&self) -> &str {
        &self.job().id
    }

    pub fn job_type(&self) -> &str {
        &self.job().job_type
    }

    pub fn queue(&self) -> &str {
        &self.job().queue
    }

    /// Number of this attempt, from 1. A snooze or release does not count.
    pub fn attempt(&self) -> u32 {
        self.job().attempt
    }

    /// Whether a failure of this attempt ends the job.
    pub fn is_last_attempt(&self) -> bool {
        self.job().last_attempt
    }

    /// Id of this attempt: a key for requests to other systems that must not repeat.
    pub fn attempt_id(&self) -> Option<&str> {
        self.job().attempt_id.as_deref()
    }

    pub fn previous_attempt_id(&self) -> Option<&str> {
        self.job().previous_attempt_id.as_deref()
    }

    /// Fencing token for other systems: grows with every claim of the job.
    pub fn lease_version(&self) -> u64 {
        self.job().lease.version
    }

    pub fn idempotency_key(&self) -> Option<&str> {
        self.job().idempotency_key.as_deref()
    }

    pub fn correlation_id(&self) -> Option<&str> {
        self.job().correlation_id.as_deref()
    }

    pub fn workflow(&self) -> Option<&str> {
        self.job().workflow.as_deref()
    }

    /// W3C trace context of the submission.
    pub fn traceparent(&self) -> Option<&str> {
        self.job().traceparent.as_deref()
    }

    pub fn tags(&self) -> &TagMap {
        &self.job().tags
    }

    /// Waits until the handler should stop. Returns why. Cancel safe.
    pub async fn cancelled(&self) -> CancelReason {
        self.active.token.fired().await
    }

    /// Waits until the lease is lost, which may follow another reason. Cancel safe.
    pub async fn lease_lost(&self) {
        self.active.token.lease_lost().await;
    }

    /// Returns why the handler should stop, or `None` while it may go on.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.active.token.reason()
    }

    /// Time until the token fires because of the execution timeout; `None` without one.
    pub fn remaining(&self) -> Option<Duration> {
        self.active.token_deadline().map(|deadline| deadline.saturating_sub(monotonic()))
    }

    /// Stores progress for readers. It is sent with the next heartbeat, or with the result.
    pub fn set_progress(&self, progress: &(impl Serialize + ?Sized)) -> Result<(), HandlerError> {
        self.active.notes.lock().progress = Some(to_raw_value(progress)?);
        Ok(())
    }

    /// Returns the last checkpoint, of this attempt or of an earlier one. One of another form
    /// counts as none.
    pub fn checkpoint<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.active.checkpoint.lock().as_ref()?.get()).ok()
    }

    /// Stores data for a later attempt, instead of the last checkpoint. Returns when the server has
    /// synced it. A handler with [`JobContext::step`] has no other checkpoint.
    pub async fn save_checkpoint(&self, checkpoint: &(impl Serialize + Sync + ?Sized)) -> Result<(), HandlerError> {
        self.store_checkpoint(to_raw_value(checkpoint)?).await
    }

    async fn store_checkpoint(&self, json: Box<RawValue>) -> Result<(), HandlerError> {
        *self.active.checkpoint.lock() = Some(json.clone());
        if self.shared.is_offline {
            return Ok(());
        }
        let (stored, answer) = oneshot::channel();
        {
            let mut notes = self.active.notes.lock();
            notes.checkpoint = Some(json);
            notes.waiters.push(stored);
        }
        self.shared.table.keeper_wake.notify_one();
        match answer.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(HandlerError::temporary(format!("the checkpoint was not stored: {why}"))),
            Err(_) => Err(HandlerError::temporary("the checkpoint was not stored: the worker has ended")),
        }
    }

    /// Runs a part of the handler once over all attempts, and returns its stored result.
    ///
    /// The results are kept in the checkpoint, in the member `$steps`. A part whose result was not
    /// stored, because the worker was killed, runs again.
    pub async fn step<T, E, Run>(&self, name: &str, work: impl FnOnce() -> Run) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        Run: Future<Output = Result<T, E>>,
    {
        if let Some(result) = self.steps().get(name) {
            return Ok(serde_json::from_str(result.get())?);
        }
        let result = work().await.map_err(Into::into)?;
        let json = to_raw_value(&result)?;
        let checkpoint = {
            // Parts that run at the same time store their results one after the other.
            let mut checkpoint = self.active.checkpoint.lock();
            let mut steps = steps_of(checkpoint.as_deref());
            steps.insert(name.to_owned(), json);
            let json = to_raw_value(&BTreeMap::from([(STEPS, steps)]))?;
            *checkpoint = Some(json.clone());
            json
        };
        self.store_checkpoint(checkpoint).await?;
        Ok(result)
    }

    fn steps(&self) -> BTreeMap<String, Box<RawValue>> {
        steps_of(self.active.checkpoint.lock().as_deref())
    }

    pub(crate) fn classifier(&self) -> Classifier<'_> {
        Classifier(self.shared.classify.as_ref())
    }

    /// Returns the state of type `T`, if the worker has one.
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<State<T>> {
        self.shared.states.get()
    }

    /// The client of the worker, for more submissions.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Returns one page of the results of the job's dependencies.
    pub async fn inputs(&self, cursor: Option<&str>) -> Result<Inputs, Error> {
        self.client().inputs(self.id(), cursor).await
    }

    /// Creates jobs that belong to this one, and a job that runs after all of them have completed.
    /// Fenced by the lease: a run that has lost it creates nothing.
    pub async fn create_children(
        &self,
        jobs: impl IntoIterator<Item = JobRequest>,
        finally: Option<JobRequest>,
    ) -> Result<ChildrenCreated, Error> {
        let lease = Some(self.job().lease.token.clone());
        let prepare = |job| self.client().prepare(job);
        let (jobs, finally) = (members(jobs.into_iter().map(prepare))?, members(finally.map(prepare))?.pop());
        self.client().create_children(self.id(), &Children { lease, jobs, finally }).await
    }

    /// Makes the job ready again at once: `return Err(context.release())`.
    pub fn release(&self) -> HandlerError {
        HandlerError::release()
    }

    /// Makes the job ready again after `delay`.
    pub fn snooze(&self, delay: Duration) -> HandlerError {
        HandlerError::snooze(delay)
    }
}

/// Returns the results of steps in a checkpoint.
fn steps_of(checkpoint: Option<&RawValue>) -> BTreeMap<String, Box<RawValue>> {
    let members: Option<BTreeMap<String, Box<RawValue>>> =
        checkpoint.and_then(|checkpoint| serde_json::from_str(checkpoint.get()).ok());
    let steps = members.and_then(|mut members| members.remove(STEPS));
    steps.and_then(|steps| serde_json::from_str(steps.get()).ok()).unwrap_or_default()
}
