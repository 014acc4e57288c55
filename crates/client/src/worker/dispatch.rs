//! The dispatcher: claims jobs, starts them, and sends their settlements.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use longshore_api::RetryAdvice;
use longshore_api::enums::WorkerDirective;
use longshore_api::work::{Claim, Claimed, JobState, Verdict};
use tokio::time::sleep;

use super::active_job::{ActiveJob, JobPhase};
use super::core::WorkerCore;
use super::handler::BoxFuture;
use super::outcome::JobOutcome;
use super::report::is_outage;
use super::settle::{PendingSettlement, send_settlements};
use super::wire_duration;
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

/// A request that is in flight.
struct Exchange {
    claim_limit: usize,
    response: BoxFuture<'static, ExchangeResponse>,
}

/// Its response.
struct ExchangeResponse {
    batch: Vec<PendingSettlement>,
    /// When the request was sent.
    sent: Duration,
    claim_limit: usize,
    result: Result<Option<Claimed>, Error>,
    verdicts: Vec<Verdict<JobState>>,
}

pub(super) struct JobDispatcher {
    core: Arc<WorkerCore>,
    /// Claimed jobs that wait for a slot.
    prefetched: VecDeque<Arc<ActiveJob>>,
    /// A claim without settlements, which may wait at the server.
    long_poll: Option<Exchange>,
    exchanges: FuturesUnordered<BoxFuture<'static, ExchangeResponse>>,
    /// Limits of the claims among the exchanges.
    promised: usize,
    claimed_jobs: u64,
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
            core,
            prefetched: VecDeque::new(),
            long_poll: None,
            exchanges: FuturesUnordered::new(),
            promised: 0,
            claimed_jobs: 0,
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
                self.stop_claims();
            }
            self.start_prefetched();
            let wait = self.send_requests(monotonic());
            if self.is_finished() {
                return self.fatal.map_or(Ok(()), Err);
            }
            let core = Arc::clone(&self.core);
            let Self { long_poll, exchanges, .. } = &mut self;
            let polled = async {
                match long_poll {
                    Some(exchange) => (&mut exchange.response).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(response) = exchanges.next(), if !exchanges.is_empty() => {
                    self.promised -= response.claim_limit;
                    self.on_response(response);
                }
                response = polled => {
                    self.long_poll = None;
                    self.on_response(response);
                }
                () = core.table.dispatch_wake.notified() => {}
                Ok(()) = draining.changed() => {}
                () = sleep(wait) => {}
            }
        }
    }

    fn stop_claims(&mut self) {
        // The server releases the jobs of a dropped request.
        self.long_poll = None;
        let now = monotonic();
        for job in self.prefetched.drain(..) {
            if job.change_phase(JobPhase::Prefetched, JobPhase::Settling) {
                self.core.queue.push(PendingSettlement { active: job, outcome: JobOutcome::Release, finished_at: now });
            }
        }
    }

    fn start_prefetched(&mut self) {
        while self.core.table.running() < self.core.options.slots
            && let Some(job) = self.prefetched.pop_front()
        {
            // The lease keeper may have released it.
            if job.change_phase(JobPhase::Prefetched, JobPhase::Running) {
                self.core.start_run(&job);
            }
        }
    }

    fn is_finished(&self) -> bool {
        let is_ending = self.is_done || self.fatal.is_some() || self.core.is_draining();
        is_ending && self.core.table.is_empty() && self.core.queue.len() == 0 && self.exchanges.is_empty()
    }

    /// Returns how many jobs a claim may ask for now.
    fn claim_capacity(&self, now: Duration) -> usize {
        let options = &self.core.options;
        let running = self.core.table.running();
        let is_allowed = !self.core.is_draining() && !self.is_done && self.fatal.is_none() && now >= self.next_claim;
        if !is_allowed || self.core.queue.len() > options.slots + BACK_PRESSURE {
            return 0;
        }
        let free = options.slots.saturating_sub(running);
        let ahead = free * options.prefetch_percent / 100;
        let promised = self.promised + self.long_poll.as_ref().map_or(0, |poll| poll.claim_limit);
        let capacity = ahead.saturating_sub(self.prefetched.len() + promised).min(CLAIM_MAX);
        match options.max_jobs {
            Some(most) => {
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
            let is_idle = self.core.table.running() == 0 && self.prefetched.is_empty();
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
        if self.core.queue.len() == 0 && self.long_poll.is_none() && self.promised == 0 {
            let capacity = self.claim_capacity(now);
            // Slots become free one by one: a claim for a few of them waits for others.
            let is_small = capacity * SMALL_CLAIM < self.core.options.slots;
            let linger_until = if is_small { self.last_claimed + FLUSH_LINGER } else { Duration::ZERO };
            if capacity > 0 && now >= linger_until {
                self.long_poll = Some(self.poll(capacity));
            } else if capacity > 0 {
                wait = wait.min(linger_until - now);
            } else if now < self.next_claim {
                wait = wait.min(self.next_claim - now);
            }
        }
        wait
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

    fn new_claim(&self, limit: usize, wait: Duration) -> Claim {
        let options = &self.core.options;
        Claim {
            queues: options.queues.clone(),
            worker: Some(options.name.clone()),
            version: options.version.clone(),
            limit: Some(limit as u64),
            wait: (!wait.is_zero()).then(|| wire_duration(wait)),
            types: (!options.types.is_empty()).then(|| options.types.clone()),
            lease: options.lease.map(wire_duration),
            execution_timeout: options.execution_timeout.map(wire_duration),
            ..Claim::default()
        }
    }

    /// Claims jobs, and waits for them at the server.
    fn poll(&self, limit: usize) -> Exchange {
        let options = &self.core.options;
        let wait = match (options.until_empty, self.core.table.is_empty()) {
            // During an outage the claim does not wait, so that its end is reported at once.
            _ if self.core.reporter.is_server_lost() => Duration::ZERO,
            (true, true) => Duration::ZERO,
            (true, false) => BUSY_WAIT,
            (false, _) => options.wait,
        };
        let claim = self.new_claim(limit, wait);
        let client = self.core.client.clone();
        let response = Box::pin(async move {
            let sent = monotonic();
            let result = client.claim(&claim).await.map(Some);
            ExchangeResponse { batch: Vec::new(), sent, claim_limit: limit, result, verdicts: Vec::new() }
        });
        Exchange { claim_limit: limit, response }
    }

    /// Sends settlements, with a claim for the slots that they have freed.
    fn exchange(&mut self, batch: Vec<PendingSettlement>, now: Duration) {
        let claim_limit = self.claim_capacity(now);
        self.promised += claim_limit;
        let client = self.core.client.clone();
        let claim = (claim_limit > 0).then(|| {
            let settle = batch.iter().map(PendingSettlement::to_settlement).collect();
            Claim { settle: Some(settle), ..self.new_claim(claim_limit, Duration::ZERO) }
        });
        let response: BoxFuture<'static, ExchangeResponse> = Box::pin(async move {
            let sent = monotonic();
            let (result, verdicts) = match claim {
                Some(claim) => match client.claim(&claim).await {
                    Ok(mut claimed) => {
                        let verdicts = claimed.results.take().unwrap_or_default();
                        (Ok(Some(claimed)), verdicts)
                    }
                    // One item may have refused the whole request: each gets its verdict alone.
                    Err(error) if error.retry() == RetryAdvice::Never && !is_outage(&error) => {
                        match send_settlements(&client, &batch).await {
                            Ok(verdicts) => (Ok(None), verdicts),
                            Err(error) => (Err(error), Vec::new()),
                        }
                    }
                    Err(error) => (Err(error), Vec::new()),
                },
                None => match send_settlements(&client, &batch).await {
                    Ok(verdicts) => (Ok(None), verdicts),
                    Err(error) => (Err(error), Vec::new()),
                },
            };
            ExchangeResponse { batch, sent, claim_limit, result, verdicts }
        });
        self.exchanges.push(response);
    }

    fn on_response(&mut self, response: ExchangeResponse) {
        let ExchangeResponse { batch, sent, claim_limit, result, verdicts } = response;
        self.core.reporter.observe_response(&result);
        let settled = !batch.is_empty();
        match result {
            Ok(claimed) => {
                if settled {
                    self.settle_backoff.reset();
                    self.core.apply_verdicts(batch, verdicts);
                }
                if let Some(claimed) = claimed {
                    self.on_claimed(claimed, sent, !settled);
                }
            }
            Err(error) => {
                let now = monotonic();
                self.core.queue.put_back(batch);
                let is_refusal = error.retry() == RetryAdvice::Never && !is_outage(&error);
                if claim_limit > 0 {
                    self.next_claim = now + self.claim_backoff.next_delay();
                    if is_refusal {
                        self.fatal = Some(error);
                    }
                }
                if settled && !is_refusal {
                    self.next_settle = now + self.settle_backoff.next_delay();
                }
            }
        }
    }

    fn on_claimed(&mut self, claimed: Claimed, sent: Duration, is_poll: bool) {
        self.claim_backoff.reset();
        self.claimed_jobs += claimed.jobs.len() as u64;
        let is_empty = claimed.jobs.is_empty();
        self.prefetched.extend(self.core.table.insert(claimed.jobs, sent, claimed.now));
        let now = monotonic();
        if !is_empty {
            self.last_claimed = now;
        }
        self.core.obey(claimed.directive);
        let is_held_back = claimed.directive != WorkerDirective::Run;
        if is_held_back {
            self.next_claim = now + jittered(QUIET_PAUSE);
        } else if is_empty && is_poll && now.saturating_sub(sent) < EARLY {
            self.next_claim = now + jittered(EARLY_PAUSE);
        }
        let is_idle = self.core.table.is_empty() && self.core.queue.len() == 0;
        if self.core.options.until_empty && is_poll && is_empty && is_idle && !is_held_back {
            self.is_done = true;
        }
    }
}
