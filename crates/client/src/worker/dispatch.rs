//! The dispatcher: claims jobs, starts them, and sends their settlements.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use longshore_api::RetryAdvice;
use longshore_api::enums::WorkerDirective;
use longshore_api::work::{Claim, Claimed, JobState, Verdict};
use tokio::time::sleep;

use super::active_job::{ActiveJob, JobPhase};
use super::claims::{ExchangeResponse, GroupClaims, new_claim, poll};
use super::core::WorkerCore;
use super::handler::BoxFuture;
use super::keeper::LeaseKeeper;
use super::outcome::JobOutcome;
use super::report::is_outage;
use super::settle::{PendingSettlement, send_settlements};
use crate::client::Client;
use crate::clock::monotonic;
use crate::error::Error;
use crate::random::{BackoffTimer, jittered};

/// Settlements wait for others: up to this many,
const FLUSH_COUNT: usize = 64;
/// or this long.
const FLUSH_LINGER: Duration = Duration::from_millis(5);
/// A claim for less than this part of the slots waits for [`FLUSH_LINGER`] after the last one.
const SMALL_CLAIM: usize = 4;
/// Requests with settlements that are in flight at the same time.
const EXCHANGES_MAX: usize = 2;
/// Most jobs of one claim.
const CLAIM_MAX: usize = 1_000;
/// Longest waits of `Retry-After` that are kept. A settlement must not outlast its lease.
const CLAIM_WAIT_MAX: Duration = Duration::from_secs(60);
const SETTLE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Claims stop while more settlements than this wait, beyond the slots: the server is too slow.
const BACK_PRESSURE: usize = 1_000;
/// A server that stops answers waiting claims at once: the worker does not ask again at once.
const EARLY: Duration = Duration::from_millis(20);
const EARLY_PAUSE: Duration = Duration::from_millis(200);
/// A quiet worker claims this often, to learn that it may run again.
const QUIET_PAUSE: Duration = Duration::from_secs(1);
/// With `until_empty` a busy worker waits this long: a running job may submit others.
const BUSY_WAIT: Duration = Duration::from_millis(500);
/// After the release of all jobs, settlements are retried for this time.
const LAST_RETRIES: Duration = Duration::from_secs(10);

pub(super) struct JobDispatcher {
    core: Arc<WorkerCore>,
    /// The client of claims that wait.
    poll_client: Client,
    groups: Vec<GroupClaims>,
    polls: FuturesUnordered<BoxFuture<'static, ExchangeResponse>>,
    exchanges: FuturesUnordered<BoxFuture<'static, ExchangeResponse>>,
    claimed_jobs: u64,
    has_claimed: bool,
    claim_backoff: BackoffTimer,
    settle_backoff: BackoffTimer,
    /// When the last claim returned jobs.
    last_claimed: Duration,
    next_claim: Duration,
    next_settle: Duration,
    /// The work is done: no more claims, without a signal.
    is_done: bool,
    fatal: Option<Error>,
}

impl JobDispatcher {
    pub(super) fn new(core: Arc<WorkerCore>) -> Self {
        Self {
            poll_client: core.client.with_hangup(&core.hangup),
            groups: core.groups.iter().map(|_| GroupClaims::default()).collect(),
            core,
            polls: FuturesUnordered::new(),
            exchanges: FuturesUnordered::new(),
            claimed_jobs: 0,
            has_claimed: false,
            claim_backoff: BackoffTimer::new(Duration::from_millis(250), Duration::from_secs(10)),
            settle_backoff: BackoffTimer::new(Duration::from_millis(100), Duration::from_secs(2)),
            last_claimed: Duration::ZERO,
            next_claim: Duration::ZERO,
            next_settle: Duration::ZERO,
            is_done: false,
            fatal: None,
        }
    }

    /// Works until the worker is drained, or the work is done. Returns an error if the server
    /// refuses the claims.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        let mut draining = self.core.draining.subscribe();
        loop {
            if self.core.is_draining() {
                self.release_prefetched();
            }
            self.start_prefetched();
            let wait = self.send_requests(monotonic());
            if self.is_finished() {
                return self.fatal.take().map_or(Ok(()), Err);
            }
            let core = Arc::clone(&self.core);
            tokio::select! {
                Some(response) = self.exchanges.next(), if !self.exchanges.is_empty() => self.on_response(response),
                Some(response) = self.polls.next(), if !self.polls.is_empty() => self.on_response(response),
                () = core.table.dispatch_wake.notified() => {}
                Ok(()) = draining.changed() => {}
                () = sleep(wait) => {}
            }
        }
    }

    fn release_prefetched(&mut self) {
        let now = monotonic();
        for job in self.groups.iter_mut().flat_map(|group| group.prefetched.drain(..)) {
            if job.change_phase(JobPhase::Prefetched, JobPhase::Settling) {
                self.core.queue.push(PendingSettlement { active: job, outcome: JobOutcome::Release, finished_at: now });
            }
        }
    }

    fn start_prefetched(&mut self) {
        for (index, (group, claims)) in self.core.groups.iter().zip(&mut self.groups).enumerate() {
            while self.core.table.running_in(index) < group.slots
                && let Some(job) = claims.prefetched.pop_front()
            {
                // The lease keeper may have released it.
                if job.change_phase(JobPhase::Prefetched, JobPhase::Running) {
                    self.core.start_run(&job);
                }
            }
        }
    }

    fn is_finished(&self) -> bool {
        let is_ending = self.is_done || self.fatal.is_some() || self.core.is_draining();
        let is_idle = self.exchanges.is_empty() && self.polls.is_empty() && self.core.is_idle();
        is_ending && is_idle
    }

    /// Returns how many jobs a claim for the group may ask for now.
    fn claim_capacity(&self, index: usize, now: Duration) -> usize {
        let options = &self.core.options;
        let (Some(group), Some(claims)) = (self.core.groups.get(index), self.groups.get(index)) else { return 0 };
        let is_allowed = !self.core.is_draining() && !self.is_done && self.fatal.is_none() && now >= self.next_claim;
        if !is_allowed || claims.is_empty || self.core.queue.len() > self.core.slots() + BACK_PRESSURE {
            return 0;
        }
        let free = group.slots.saturating_sub(self.core.table.running_in(index));
        let ahead = free * options.prefetch_percent / 100;
        let capacity = ahead.saturating_sub(claims.prefetched.len() + claims.promised).min(CLAIM_MAX);
        match options.max_jobs {
            Some(most) => {
                let promised: usize = self.groups.iter().map(|group| group.promised).sum();
                let left = most.saturating_sub(self.claimed_jobs + promised as u64);
                capacity.min(usize::try_from(left).unwrap_or(usize::MAX))
            }
            None => capacity,
        }
    }

    /// Sends what is due. Returns how long the dispatcher may sleep.
    fn send_requests(&mut self, now: Duration) -> Duration {
        let mut wait = Duration::from_secs(60);
        if self.core.options.max_jobs.is_some_and(|most| self.claimed_jobs >= most) {
            self.is_done = true;
        }
        self.drop_expired(now);
        let pending = self.core.queue.len();
        if pending > 0 {
            let is_idle =
                self.core.table.running() == 0 && self.groups.iter().all(|claims| claims.prefetched.is_empty());
            let flush_at = self.core.queue.oldest().map_or(now, |oldest| oldest + FLUSH_LINGER);
            let is_due = pending >= FLUSH_COUNT || is_idle || now >= flush_at;
            if now < self.next_settle {
                wait = wait.min(self.next_settle - now);
            } else if is_due && self.exchanges.len() < EXCHANGES_MAX {
                let batch = self.core.queue.take_batch();
                self.exchange(batch, now);
            } else if !is_due {
                wait = wait.min(flush_at - now);
            }
        }
        if self.core.queue.len() == 0 {
            for index in 0..self.groups.len() {
                wait = wait.min(self.poll_group(index, now));
            }
        }
        wait
    }

    /// Sends a claim for a group that has none in flight. Returns how long the dispatcher may
    /// sleep.
    fn poll_group(&mut self, index: usize, now: Duration) -> Duration {
        let slots = self.core.groups.get(index).map_or(0, |group| group.slots);
        let has_claim = self.groups.get(index).is_none_or(|claims| claims.is_polling || claims.promised > 0);
        if has_claim {
            return Duration::MAX;
        }
        let capacity = self.claim_capacity(index, now);
        // Slots become free one by one: a claim for a few of them waits for others.
        let is_small = capacity * SMALL_CLAIM < slots;
        let linger_until = if is_small { self.last_claimed + FLUSH_LINGER } else { Duration::ZERO };
        if capacity > 0 && now >= linger_until {
            self.poll(index, capacity, now);
        } else if capacity > 0 {
            return linger_until - now;
        } else if now < self.next_claim {
            return self.next_claim - now;
        }
        Duration::MAX
    }

    /// Gives up settlements that the server has not accepted for too long.
    fn drop_expired(&self, now: Duration) {
        if now >= self.next_settle {
            return;
        }
        let released_at = self.core.shutdown.lock().release_at.filter(|at| now >= *at);
        let retry_until = released_at.map(|at| at + LAST_RETRIES);
        for settlement in self.core.queue.take_expired(now, retry_until) {
            self.core.end_lost(&settlement, "cannot settle the lease: the server does not respond");
        }
    }

    /// Claims jobs, and waits for them at the server.
    fn poll(&mut self, index: usize, limit: usize, now: Duration) {
        let options = &self.core.options;
        let wait = match (options.until_empty, self.core.table.is_empty()) {
            // During an outage the claim does not wait, so that its end is reported at once.
            _ if self.core.reporter.is_server_lost() => Duration::ZERO,
            (true, true) => Duration::ZERO,
            (true, false) => BUSY_WAIT,
            // A claim that does not wait shows the server's clock. Those that wait need it.
            (false, _) if !self.core.clock.lock().is_fresh(now) => Duration::ZERO,
            (false, _) => options.wait,
        };
        if let Some(claims) = self.groups.get_mut(index) {
            claims.promised += limit;
            claims.is_polling = true;
        }
        let in_flight = self.core.begin_request();
        let request = poll(Arc::clone(&self.core), self.poll_client.clone(), index, limit, wait);
        let request = async move {
            let response = request.await;
            // The jobs are in the table from here on.
            drop(in_flight);
            response
        };
        let task = match self.core.keeper.get() {
            Some(link) => link.runtime.spawn(request),
            None => tokio::spawn(request),
        };
        self.polls.push(Box::pin(async move {
            task.await.unwrap_or_else(|ended| ExchangeResponse {
                batch: Vec::new(),
                group: index,
                is_poll: true,
                sent: now,
                may_wait: false,
                claim_limit: limit,
                result: Err(Error::ResponseLost { cause: ended.into() }),
                jobs: Vec::new(),
                verdicts: Vec::new(),
            })
        }));
    }

    /// Sends settlements, with a claim for the slots that they have freed.
    fn exchange(&mut self, batch: Vec<PendingSettlement>, now: Duration) {
        let capacities = (0..self.groups.len()).map(|index| (self.claim_capacity(index, now), index));
        let (claim_limit, group) = capacities.max().unwrap_or((0, 0));
        if let Some(claims) = self.groups.get_mut(group) {
            claims.promised += claim_limit;
        }
        let core = Arc::clone(&self.core);
        let claim = (claim_limit > 0).then(|| {
            let settle = batch.iter().map(PendingSettlement::to_settlement).collect();
            Claim { settle: Some(settle), ..new_claim(&core, group, claim_limit, Duration::ZERO) }
        });
        self.exchanges.push(Box::pin(async move {
            let sent = monotonic();
            let (result, verdicts) = send_exchange(&core.client, claim, &batch).await;
            let received = monotonic();
            let mut jobs = Vec::new();
            let result = result.map(|claimed| {
                claimed.map(|mut claimed| {
                    jobs = core.insert_claimed(std::mem::take(&mut claimed.jobs), sent, received, claimed.now);
                    claimed
                })
            });
            let (is_poll, may_wait) = (false, false);
            ExchangeResponse { batch, group, is_poll, sent, may_wait, claim_limit, result, jobs, verdicts }
        }));
    }

    fn on_response(&mut self, response: ExchangeResponse) {
        let ExchangeResponse { batch, group, is_poll, sent, may_wait, claim_limit, result, jobs, verdicts } = response;
        if let Some(claims) = self.groups.get_mut(group) {
            claims.promised -= claim_limit;
            claims.is_polling &= !is_poll;
        }
        // The worker has hung up: the claim ends without a response.
        if is_poll && result.is_err() && self.core.hangup.is_fired() {
            return;
        }
        self.core.reporter.observe_response(&result);
        let settled = !batch.is_empty();
        match result {
            Ok(claimed) => {
                if settled {
                    self.settle_backoff.reset();
                    self.core.apply_verdicts(batch, verdicts);
                }
                if let Some(claimed) = claimed {
                    let is_early = may_wait && monotonic().saturating_sub(sent) < EARLY;
                    self.on_claimed(group, claimed.directive, jobs, is_poll, is_early);
                }
            }
            Err(error) => {
                let now = monotonic();
                self.core.queue.put_back(batch);
                let is_refusal = error.retry() == RetryAdvice::Never && !is_outage(&error);
                if settled && !is_refusal {
                    self.next_settle = now + self.settle_backoff.next_delay_after(&error, SETTLE_WAIT_MAX);
                }
                if claim_limit > 0 {
                    self.next_claim = now + self.claim_backoff.next_delay_after(&error, CLAIM_WAIT_MAX);
                    // A proxy without its server may respond with anything for a while.
                    let is_foreign = matches!(error, Error::UnexpectedResponse { .. });
                    if is_refusal && !(is_foreign && self.has_claimed) {
                        self.fatal = Some(error);
                        self.core.hangup.fire();
                    }
                }
            }
        }
    }

    fn on_claimed(
        &mut self,
        index: usize,
        directive: WorkerDirective,
        jobs: Vec<Arc<ActiveJob>>,
        is_poll: bool,
        is_early: bool,
    ) {
        self.claim_backoff.reset();
        self.has_claimed = true;
        self.claimed_jobs += jobs.len() as u64;
        let is_empty = jobs.is_empty();
        for job in jobs {
            if let Some(claims) = self.groups.get_mut(job.group) {
                claims.prefetched.push_back(job);
            }
        }
        let now = monotonic();
        if !is_empty {
            self.last_claimed = now;
            self.groups.iter_mut().for_each(|claims| claims.is_empty = false);
        }
        self.core.obey(directive);
        let is_held_back = directive != WorkerDirective::Run;
        if is_held_back {
            self.next_claim = now + jittered(QUIET_PAUSE);
        } else if is_empty && is_poll && is_early {
            self.next_claim = now + jittered(EARLY_PAUSE);
        }
        let is_empty_group = is_poll && is_empty && self.core.is_idle() && !is_held_back;
        if self.core.options.until_empty && is_empty_group {
            if let Some(claims) = self.groups.get_mut(index) {
                claims.is_empty = true;
            }
            let mut groups = self.core.groups.iter().zip(&self.groups);
            self.is_done = groups.all(|(group, claims)| claims.is_empty || group.slots == 0);
        }
    }
}

/// The run was dropped with settlements in flight: the thread of the lease keeper takes their
/// responses. Jobs that come with them are in the table then, and are released like all others.
impl Drop for JobDispatcher {
    fn drop(&mut self) {
        let mut exchanges = std::mem::take(&mut self.exchanges);
        let Some(link) = self.core.keeper.get().filter(|_| !exchanges.is_empty()) else { return };
        let core = Arc::clone(&self.core);
        let in_flight = core.begin_request();
        let client = link.client.clone();
        link.runtime.spawn(async move {
            while let Some(response) = exchanges.next().await {
                if response.result.is_ok() {
                    core.apply_verdicts(response.batch, response.verdicts);
                } else {
                    let keeper = LeaseKeeper { core: Arc::clone(&core), client: client.clone() };
                    keeper.send_releases(response.batch, monotonic()).await;
                }
            }
            drop(in_flight);
        });
    }
}

/// Sends settlements and a claim in one request. Returns the verdicts of the settlements.
async fn send_exchange(
    client: &Client,
    claim: Option<Claim>,
    batch: &[PendingSettlement],
) -> (Result<Option<Claimed>, Error>, Vec<Verdict<JobState>>) {
    if let Some(claim) = claim {
        match client.claim(&claim).await {
            Ok(mut claimed) => {
                let verdicts = claimed.results.take().unwrap_or_default();
                return (Ok(Some(claimed)), verdicts);
            }
            // One item may have refused the whole request: each gets its verdict alone.
            Err(error) if error.retry() == RetryAdvice::Never && !is_outage(&error) => {}
            Err(error) => return (Err(error), Vec::new()),
        }
    }
    match send_settlements(client, batch).await {
        Ok(verdicts) => (Ok(None), verdicts),
        Err(error) => (Err(error), Vec::new()),
    }
}
