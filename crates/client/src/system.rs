//! Requests about the server: health, statistics, workers, clock.

use longshore_api::Duration;
use longshore_api::access::{AuditPage, CallerPermissions, CreatedToken, NewToken, Tokens};
use longshore_api::attention::Attention;
use longshore_api::dead_letters::DeadLetterGroups;
use longshore_api::job_type::{JobTypeDetail, JobTypes};
use longshore_api::system::{Advance, Clock, Health, Info, Stats, Worker, Workers};

use crate::client::Client;
use crate::error::Error;
use crate::query::segment;

fn worker_path(worker: &str, verb: &str) -> String {
    format!("/v1/workers/{}/{verb}", segment(worker))
}

impl Client {
    /// Checks that the process responds.
    pub async fn livez(&self) -> Result<Health, Error> {
        self.get("/livez").await
    }

    /// Checks that the server is ready: its store responds, and it is not shutting down.
    pub async fn readyz(&self) -> Result<Health, Error> {
        self.get("/readyz").await
    }

    pub async fn info(&self) -> Result<Info, Error> {
        self.get("/v1/info").await
    }

    pub async fn stats(&self) -> Result<Stats, Error> {
        self.get("/v1/stats").await
    }

    /// Returns counts and rates with the series of the last `window`, one point per `step`, of one
    /// queue or of all.
    pub async fn stats_series(&self, window: Duration, step: Duration, queue: Option<&str>) -> Result<Stats, Error> {
        let queue = queue.map(|queue| format!("&queue={}", segment(queue))).unwrap_or_default();
        self.get(&format!("/v1/stats?window={window}&step={step}{queue}")).await
    }

    /// Returns what needs the attention of operators, most severe first.
    pub async fn attention(&self) -> Result<Attention, Error> {
        self.get("/v1/attention").await
    }

    /// Returns figures of the job types with an event in the window.
    pub async fn job_types(&self, window: Duration) -> Result<JobTypes, Error> {
        self.get(&format!("/v1/types?window={window}")).await
    }

    /// Returns one job type: series, errors, workers and their new versions.
    pub async fn job_type(&self, name: &str, window: Duration) -> Result<JobTypeDetail, Error> {
        self.get(&format!("/v1/types/{}?window={window}", segment(name))).await
    }

    /// Returns the dead letters of a queue, or of all, in groups by error code and message shape.
    pub async fn dead_letter_groups(&self, queue: Option<&str>) -> Result<DeadLetterGroups, Error> {
        let query = queue.map_or(String::new(), |queue| format!("?queue={}", segment(queue)));
        self.get(&format!("/v1/dead-letters/groups{query}")).await
    }

    pub async fn workers(&self) -> Result<Workers, Error> {
        self.get("/v1/workers").await
    }

    /// Asks a worker to finish its jobs and claim no more.
    pub async fn quiet_worker(&self, worker: &str) -> Result<Worker, Error> {
        self.post_empty(&worker_path(worker, "quiet")).await
    }

    /// Asks a worker to finish or release its jobs and exit.
    pub async fn stop_worker(&self, worker: &str) -> Result<Worker, Error> {
        self.post_empty(&worker_path(worker, "stop")).await
    }

    /// Lets a worker claim jobs again.
    pub async fn resume_worker(&self, worker: &str) -> Result<Worker, Error> {
        self.post_empty(&worker_path(worker, "resume")).await
    }

    /// Creates a token. Only this response has its text.
    pub async fn create_token(&self, token: &NewToken) -> Result<CreatedToken, Error> {
        self.post("/v1/tokens", token).await
    }

    /// Returns what this client may do.
    pub async fn own_permissions(&self) -> Result<CallerPermissions, Error> {
        self.get("/v1/tokens/self").await
    }

    pub async fn tokens(&self) -> Result<Tokens, Error> {
        self.get("/v1/tokens").await
    }

    /// Revokes a token, within 5 s on every node. Without any token the server trusts its own
    /// machine.
    pub async fn revoke_token(&self, id: &str) -> Result<(), Error> {
        self.delete(&format!("/v1/tokens/{}", segment(id))).await
    }

    /// Revokes a token, as [`Client::revoke_token`] does, unless it is the last one.
    pub async fn revoke_token_unless_last(&self, id: &str) -> Result<(), Error> {
        self.delete(&format!("/v1/tokens/{}?keep_last=true", segment(id))).await
    }

    /// Returns a page of the audit log, newest first. `cursor` is `next` of the page before.
    pub async fn audit(&self, limit: usize, cursor: Option<&str>) -> Result<AuditPage, Error> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", segment(cursor))).unwrap_or_default();
        self.get(&format!("/v1/audit?limit={limit}{cursor}")).await
    }

    /// Returns the time of a server with a virtual clock.
    pub async fn clock(&self) -> Result<Clock, Error> {
        self.get("/v1/clock").await
    }

    /// Advances the virtual clock.
    pub async fn advance(&self, by: Duration) -> Result<Clock, Error> {
        self.post("/v1/clock/advance", &Advance { by }).await
    }
}
