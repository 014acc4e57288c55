//! Requests about jobs: submit, read, change.

use bytes::Bytes;
use longshore_api::Duration;
use longshore_api::admin::{Bulk, BulkResult, Cancel, DeadLetter, Patch, Requeue};
use longshore_api::job::{Attempts, History, Job, Jobs, NewJob, Submitted, SubmittedBatch};
use longshore_api::system::Why;
use longshore_api::work::{Children, ChildrenCreated, JobState};
use longshore_api::workflow::Inputs;

use crate::client::Client;
use crate::error::Error;
use crate::query::{JobListQuery, segment};

/// Result of [`Client::wait`].
#[derive(Clone, Debug)]
pub struct WaitResult {
    pub job: Job,
    /// Whether the job has ended; false after the timeout.
    pub ended: bool,
}

/// A payload, byte for byte as it was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadBytes {
    pub bytes: Bytes,
    /// Whether it is JSON; else it is binary.
    pub json: bool,
}

fn job_path(id: &str, verb: &str) -> String {
    format!("/v1/jobs/{}{verb}", segment(id))
}

impl Client {
    /// Submits a job without retries. Returns when it is stored durably.
    pub async fn submit_job(&self, queue: &str, job: &NewJob) -> Result<Submitted, Error> {
        self.post(&format!("/v1/queues/{}/jobs", segment(queue)), job).await
    }

    /// Submits up to 1,000 jobs, all or none, without retries. Returns the results in the same
    /// order.
    pub async fn submit_jobs(&self, queue: &str, jobs: &[NewJob]) -> Result<SubmittedBatch, Error> {
        self.post(&format!("/v1/queues/{}/jobs", segment(queue)), jobs).await
    }

    pub async fn job(&self, id: &str) -> Result<Job, Error> {
        self.get(&job_path(id, "")).await
    }

    pub async fn job_with_payload(&self, id: &str) -> Result<Job, Error> {
        self.get(&job_path(id, "?include=payload")).await
    }

    /// Returns one page of jobs, newest first.
    pub async fn jobs(&self, filter: &JobListQuery) -> Result<Jobs, Error> {
        self.get(&filter.path()).await
    }

    pub async fn payload(&self, id: &str) -> Result<PayloadBytes, Error> {
        let (bytes, json) = self.get_bytes(&job_path(id, "/payload")).await?;
        Ok(PayloadBytes { bytes, json })
    }

    /// Returns why a job is not running.
    pub async fn why(&self, id: &str) -> Result<Why, Error> {
        self.get(&job_path(id, "/why")).await
    }

    pub async fn attempts(&self, id: &str) -> Result<Attempts, Error> {
        self.get(&job_path(id, "/attempts")).await
    }

    pub async fn history(&self, id: &str) -> Result<History, Error> {
        self.get(&job_path(id, "/history")).await
    }

    /// Returns one page of the results of the job's dependencies.
    pub async fn inputs(&self, id: &str, cursor: Option<&str>) -> Result<Inputs, Error> {
        let cursor = cursor.map(|cursor| format!("?cursor={}", segment(cursor))).unwrap_or_default();
        self.get(&job_path(id, &format!("/inputs{cursor}"))).await
    }

    /// Waits until the job has ended, or for `timeout` (at most 60 s).
    pub async fn wait(&self, id: &str, timeout: Duration) -> Result<WaitResult, Error> {
        let path = job_path(id, &format!("/wait?timeout={timeout}"));
        let job: Job = self.get_within(&path, timeout.as_std()).await?;
        let ended = job.state.terminal();
        Ok(WaitResult { job, ended })
    }

    pub async fn patch(&self, id: &str, patch: &Patch) -> Result<Job, Error> {
        self.send_patch(&job_path(id, ""), patch).await
    }

    /// Submits a held job.
    pub async fn submit_held(&self, id: &str) -> Result<JobState, Error> {
        self.post_empty(&job_path(id, "/submit")).await
    }

    pub async fn cancel(&self, id: &str, cancel: &Cancel) -> Result<JobState, Error> {
        self.post(&job_path(id, "/cancel"), cancel).await
    }

    /// Returns the id of the job that will run: the same, or a clone.
    pub async fn requeue(&self, id: &str, requeue: &Requeue) -> Result<JobState, Error> {
        self.post(&job_path(id, "/requeue"), requeue).await
    }

    pub async fn dead_letter(&self, id: &str, dead_letter: &DeadLetter) -> Result<JobState, Error> {
        self.post(&job_path(id, "/dead-letter"), dead_letter).await
    }

    pub async fn run_now(&self, id: &str) -> Result<JobState, Error> {
        self.post_empty(&job_path(id, "/run-now")).await
    }

    /// Deletes a job that has ended.
    pub async fn delete_job(&self, id: &str) -> Result<(), Error> {
        self.delete(&job_path(id, "")).await
    }

    /// Creates jobs from a running job.
    pub async fn create_children(&self, id: &str, children: &Children) -> Result<ChildrenCreated, Error> {
        self.post(&job_path(id, "/children"), children).await
    }

    pub async fn bulk(&self, bulk: &Bulk) -> Result<BulkResult, Error> {
        self.post("/v1/jobs/bulk", bulk).await
    }
}
