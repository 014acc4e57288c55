//! What a handler gets besides its payload.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::tags::TagMap;
use longshore_api::work::{Children, ChildrenCreated, ClaimedJob};
use longshore_api::workflow::Inputs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use tokio::sync::oneshot;

use super::active_job::{ActiveJob, CancelReason, JobTable};
use super::handler::{State, StateMap};
use super::outcome::HandlerError;
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
#[derive(Debug)]
pub(crate) struct ContextShared {
    pub(crate) states: Arc<StateMap>,
    pub(crate) table: Arc<JobTable>,
    pub(crate) client: Client,
}

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

    /// Returns the checkpoint of an earlier attempt. One of another form counts as none.
    pub fn checkpoint<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.job().checkpoint.as_ref()?.get()).ok()
    }

    /// Stores data for a later attempt. Returns when the server has synced it.
    pub async fn save_checkpoint(&self, checkpoint: &(impl Serialize + Sync + ?Sized)) -> Result<(), HandlerError> {
        let (stored, answer) = oneshot::channel();
        let json = to_raw_value(checkpoint)?;
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
        let (jobs, finally) = (members(jobs)?, members(finally)?.pop());
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
