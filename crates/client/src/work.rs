//! Requests of workers: claims, heartbeats, settlements.

use longshore_api::work::{
    BatchHeartbeat, Claim, Claimed, Complete, Extended, Fail, Heartbeat, Heartbeats, JobState, Release, Results,
    Settlement, Settlements, Snooze,
};

use crate::client::Client;
use crate::error::Error;
use crate::query::segment;

fn job_path(id: &str, verb: &str) -> String {
    format!("/v1/jobs/{}/{verb}", segment(id))
}

impl Client {
    /// Claims jobs, and waits for them as long as the claim says. If the future is dropped before
    /// the response, the server releases the jobs.
    pub async fn claim(&self, claim: &Claim) -> Result<Claimed, Error> {
        let wait = claim.wait.unwrap_or_default().as_std();
        self.post_within("/v1/claims", claim, wait).await
    }

    pub async fn complete(&self, id: &str, complete: &Complete) -> Result<JobState, Error> {
        self.post(&job_path(id, "complete"), complete).await
    }

    pub async fn fail(&self, id: &str, fail: &Fail) -> Result<JobState, Error> {
        self.post(&job_path(id, "fail"), fail).await
    }

    pub async fn heartbeat(&self, id: &str, heartbeat: &Heartbeat) -> Result<Extended, Error> {
        self.post(&job_path(id, "heartbeat"), heartbeat).await
    }

    pub async fn snooze(&self, id: &str, snooze: &Snooze) -> Result<JobState, Error> {
        self.post(&job_path(id, "snooze"), snooze).await
    }

    pub async fn release(&self, id: &str, release: &Release) -> Result<JobState, Error> {
        self.post(&job_path(id, "release"), release).await
    }

    /// Settles several leases. Returns one result per settlement, in the same order.
    pub async fn settle(&self, settlements: Vec<Settlement>) -> Result<Results<JobState>, Error> {
        self.post("/v1/settlements", &Settlements { settlements }).await
    }

    pub async fn heartbeats(&self, heartbeats: Vec<BatchHeartbeat>) -> Result<Results<Extended>, Error> {
        self.post("/v1/heartbeats", &Heartbeats { heartbeats }).await
    }
}
