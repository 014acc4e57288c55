//! Claims: what a group of slots may claim, and the claims that wait at the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::work::{Claim, Claimed, JobState, Verdict};
use tokio::time::sleep;

use super::active_job::{ActiveJob, JobPhase};
use super::core::WorkerCore;
use super::keeper::LeaseKeeper;
use super::outcome::JobOutcome;
use super::settle::PendingSettlement;
use super::wire_duration;
use crate::client::Client;
use crate::clock::monotonic;
use crate::error::Error;

/// How long the response to a claim is read after its connection was hung up.
const HANGUP_TIMEOUT: Duration = Duration::from_secs(2);

/// The claims of one group of slots.
#[derive(Debug, Default)]
pub(super) struct GroupClaims {
    /// Claimed jobs that wait for a slot.
    pub(super) prefetched: VecDeque<Arc<ActiveJob>>,
    /// Limits of the claims in flight.
    pub(super) promised: usize,
    /// A claim without settlements is in flight, which may wait at the server.
    pub(super) is_polling: bool,
    /// With `until_empty`: the last claim found no job, and nothing has run since.
    pub(super) is_empty: bool,
}

/// The response to a request with a claim, with settlements, or with both.
pub(super) struct ExchangeResponse {
    pub(super) batch: Vec<PendingSettlement>,
    pub(super) group: usize,
    pub(super) is_poll: bool,
    /// When the request was sent.
    pub(super) sent: Duration,
    /// Whether the claim may have waited at the server.
    pub(super) may_wait: bool,
    pub(super) claim_limit: usize,
    pub(super) result: Result<Option<Claimed>, Error>,
    /// The claimed jobs, already in the table.
    pub(super) jobs: Vec<Arc<ActiveJob>>,
    pub(super) verdicts: Vec<Verdict<JobState>>,
}

/// Returns a claim for a group of slots.
pub(super) fn new_claim(core: &WorkerCore, group: usize, limit: usize, wait: Duration) -> Claim {
    let options = &core.options;
    let types = core.groups.get(group).map(|group| group.types.clone()).unwrap_or_default();
    Claim {
        queues: options.queues.clone(),
        worker: Some(options.name.clone()),
        version: options.version.clone(),
        limit: Some(limit as u64),
        wait: (!wait.is_zero()).then(|| wire_duration(wait)),
        types: (!types.is_empty()).then_some(types),
        lease: options.lease.map(wire_duration),
        execution_timeout: options.execution_timeout.map(wire_duration),
        ..Claim::default()
    }
}

/// Claims jobs, and waits for them at the server. Runs on the thread of the lease keeper: a blocked
/// runtime delays neither the first heartbeat of the jobs nor their release at a shutdown.
pub(super) async fn poll(
    core: Arc<WorkerCore>,
    client: Client,
    group: usize,
    limit: usize,
    wait: Duration,
) -> ExchangeResponse {
    let claim = new_claim(&core, group, limit, wait);
    let sent = monotonic();
    let expired = async {
        core.hangup.fired().await;
        sleep(HANGUP_TIMEOUT).await;
    };
    let result = tokio::select! {
        biased;
        result = client.claim(&claim) => result,
        () = expired => Err(Error::ResponseLost { cause: "the worker has ended its claim".into() }),
    };
    let received = monotonic();
    let mut jobs = Vec::new();
    let result = result.map(|mut claimed| {
        jobs = core.insert_claimed(std::mem::take(&mut claimed.jobs), sent, received, claimed.now);
        Some(claimed)
    });
    if core.is_draining() && !jobs.is_empty() {
        release_unstarted(&core, &jobs, received).await;
    }
    let may_wait = !wait.is_zero();
    let (batch, verdicts) = (Vec::new(), Vec::new());
    ExchangeResponse { batch, group, is_poll: true, sent, may_wait, claim_limit: limit, result, jobs, verdicts }
}

/// Releases jobs that arrived after the drain began.
async fn release_unstarted(core: &Arc<WorkerCore>, jobs: &[Arc<ActiveJob>], now: Duration) {
    let unstarted = jobs.iter().filter(|job| job.change_phase(JobPhase::Prefetched, JobPhase::Settling));
    let batch: Vec<_> = unstarted
        .map(|job| PendingSettlement { active: Arc::clone(job), outcome: JobOutcome::Release, finished_at: now })
        .collect();
    if let Some(link) = core.keeper.get() {
        LeaseKeeper { core: Arc::clone(core), client: link.client.clone() }.send_releases(batch, now).await;
    } else {
        batch.into_iter().for_each(|settlement| core.push_settlement(settlement));
    }
}
