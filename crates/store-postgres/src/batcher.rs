//! Lanes: each takes whatever waits, does all of it in one transaction, and answers everybody once it is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_store::StoreError;
use tokio::sync::{Mutex, Notify, mpsc};

use crate::connection::Connection;
use crate::error::TxError;
use crate::node::Shared;
use crate::tick;
use crate::transaction::{Transaction, fast_path};
use longshore_store::ErrorMessage;
use longshore_store::Request;

/// Jobs that share one transaction, at most.
const COMMANDS_MAX: usize = 1_000;
/// Commands that are worth a transaction, whatever else is under way.
const BATCH_TARGET: usize = 32;
/// How long anybody waits for others to come.
const BATCH_LINGER: Duration = Duration::from_millis(5);
/// How often a transaction that somebody was in the way of is tried.
const ATTEMPTS_MAX: u32 = 12;
/// How often one is that has waited for a lock as long as it may.
const LOCK_TIMEOUT_ATTEMPTS_MAX: u32 = 2;
/// How often one that has to be alone is: it waits for 50 ms each time.
const EXCLUSIVE_ATTEMPTS_MAX: u32 = 80;
/// How long a transaction of many waits for others who hold what one of them needs.
const LOCK_TIMEOUT_BATCH: Duration = Duration::from_millis(300);
/// How long its parts do, once it is known that one of them is held up.
const LOCK_TIMEOUT_SPLIT: Duration = Duration::from_millis(50);
/// So many are tried one by one; more are halved, because each of them may take long.
const SINGLES_MAX: usize = 8;
/// How long one that waits by itself does.
const LOCK_TIMEOUT_SINGLE: Duration = Duration::from_secs(10);
/// How often a connection that turns out to be dead is replaced.
const RECONNECTS_MAX: u32 = 4;

/// Requests of one sort, and the lanes that take them.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    requests: Mutex<mpsc::Receiver<Request>>,
    /// Commands in transactions that are under way.
    in_flight: AtomicUsize,
    ended: Notify,
}

impl RequestQueue {
    pub(crate) fn new(requests: mpsc::Receiver<Request>) -> Self {
        Self { requests: Mutex::new(requests), in_flight: AtomicUsize::new(0), ended: Notify::new() }
    }

    /// Whatever waits, and whoever is just about to come. While others are under way, a transaction is worth its price only if it has as much to do as they
    /// have: else those who are answered together would come back one by one.
    async fn next(&self) -> Option<Batch<'_>> {
        let mut waiting = self.requests.lock().await;
        let first = waiting.recv().await?;
        let mut batch = Batch { commands: first.commands(), requests: vec![first], of: self, begun: false };
        loop {
            tokio::task::yield_now().await;
            if batch.fill(&mut waiting) {
                continue;
            }
            if batch.commands >= self.in_flight.load(Ordering::Acquire).min(BATCH_TARGET) {
                break;
            }
            tokio::select! {
                () = self.ended.notified() => {}
                // Those may be stuck.
                () = tokio::time::sleep(BATCH_LINGER) => break,
                next = waiting.recv() => match next {
                    Some(next) => batch.add(next),
                    None => break,
                },
            }
        }
        self.in_flight.fetch_add(batch.commands, Ordering::AcqRel);
        batch.begun = true;
        Some(batch)
    }
}

/// Requests that share a transaction.
struct Batch<'a> {
    requests: Vec<Request>,
    commands: usize,
    of: &'a RequestQueue,
    /// Its commands are counted among those that are under way.
    begun: bool,
}

impl Batch<'_> {
    fn add(&mut self, request: Request) {
        self.commands += request.commands();
        self.requests.push(request);
    }

    /// Says whether anybody has come, and more may.
    fn fill(&mut self, waiting: &mut mpsc::Receiver<Request>) -> bool {
        let before = self.commands;
        while self.commands < COMMANDS_MAX
            && let Ok(next) = waiting.try_recv()
        {
            self.add(next);
        }
        self.commands > before && self.commands < COMMANDS_MAX
    }
}

impl Drop for Batch<'_> {
    /// However it ended.
    fn drop(&mut self) {
        if self.begun {
            self.of.in_flight.fetch_sub(self.commands, Ordering::AcqRel);
            self.of.ended.notify_one();
        }
    }
}

/// Works until every sender is gone.
pub(crate) async fn run(shared: Arc<Shared>, waiting: Arc<RequestQueue>, patient: Option<mpsc::Sender<Request>>) {
    let mut lane = BatchWorker::new(shared, patient);
    while let Some(mut batch) = waiting.next().await {
        lane.serve(std::mem::take(&mut batch.requests)).await;
    }
}

/// Those who wait for somebody else's transaction, one by one, so that nobody has to wait with them.
pub(crate) async fn run_lock_waiter(shared: Arc<Shared>, waiting: Arc<RequestQueue>) {
    let mut lane = BatchWorker::new(shared, None);
    loop {
        let next = waiting.requests.lock().await.recv().await;
        let Some(request) = next else { return };
        lane.serve(vec![request]).await;
    }
}

/// Where what is not done quickly goes.
#[derive(Clone, Debug)]
pub(crate) struct FallbackQueues {
    pub claims: mpsc::Sender<Request>,
    pub settles: mpsc::Sender<Request>,
}

impl FallbackQueues {
    async fn take(&self, requests: Vec<Request>) {
        for request in requests {
            let lane = if request.is_claim() { &self.claims } else { &self.settles };
            if let Err(refused) = lane.send(request).await {
                refused.0.fail(closed());
            }
        }
    }
}

/// Claims, settlements and heartbeats: together and in one trip, or each by its own lane.
pub(crate) async fn run_hot_path(shared: Arc<Shared>, waiting: Arc<RequestQueue>, slow: FallbackQueues) {
    let mut lane = BatchWorker::new(shared, None);
    while let Some(mut batch) = waiting.next().await {
        let requests = std::mem::take(&mut batch.requests);
        let claims = |request: &Request| request.is_claim();
        let others: usize = requests.iter().filter(|request| !claims(request)).map(Request::commands).sum();
        // So many settlements are worth a transaction of their own, beside the claims.
        let (requests, apart) =
            if others >= BATCH_TARGET { requests.into_iter().partition(claims) } else { (requests, Vec::new()) };
        slow.take(apart).await;
        slow.take(lane.try_fast_path(requests).await).await;
    }
}

pub(crate) struct BatchWorker {
    pub shared: Arc<Shared>,
    pub link: Option<Connection>,
    /// Who takes over what somebody else's transaction holds up; `None`: it is waited for here.
    lock_waiters: Option<mpsc::Sender<Request>>,
    /// How long others are waited for who hold what is needed.
    locks: Duration,
}

impl BatchWorker {
    pub(crate) fn new(shared: Arc<Shared>, lock_waiters: Option<mpsc::Sender<Request>>) -> Self {
        let locks = if lock_waiters.is_some() { LOCK_TIMEOUT_BATCH } else { LOCK_TIMEOUT_SINGLE };
        Self { shared, link: None, lock_waiters, locks }
    }

    pub(crate) async fn serve(&mut self, mut batch: Vec<Request>) {
        batch.retain(|request| !request.is_abandoned());
        if batch.is_empty() {
            return;
        }
        if let [Request::Tick(budget, _)] = batch.as_slice() {
            let ticked = tick::tick(self, *budget).await;
            for request in batch {
                match &ticked {
                    Ok(ticked) => request.answer(longshore_store::Response::Tick(*ticked)),
                    Err(error) => request.fail(error.clone()),
                }
            }
            return;
        }
        if batch.iter().any(|request| matches!(request, Request::Tick(..))) {
            // Each by itself: the next sees what the one before has left.
            for request in batch {
                Box::pin(self.serve(vec![request])).await;
            }
            return;
        }
        match self.run_transaction(&batch).await {
            Ok(done) => {
                self.shared.announce(done.effects, done.deadline);
                batch.into_iter().zip(done.answers).for_each(|(request, answered)| request.answer(answered));
            }
            Err(trouble) => self.split_batch(batch, trouble).await,
        }
    }

    /// Answers those that could not be served so.
    async fn try_fast_path(&mut self, mut batch: Vec<Request>) -> Vec<Request> {
        batch.retain(|request| !request.is_abandoned());
        match self.quick(&batch).await {
            Ok(Some(done)) => {
                self.shared.announce(done.effects, done.deadline);
                batch.into_iter().zip(done.answers).for_each(|(request, answered)| request.answer(answered));
                Vec::new()
            }
            Ok(None) => batch,
            Err(trouble) => {
                let error = trouble.into_store_error();
                batch.into_iter().for_each(|request| request.fail(error.clone()));
                Vec::new()
            }
        }
    }

    /// `None`: nothing was done.
    async fn quick(&mut self, requests: &[Request]) -> Result<Option<crate::transaction::Committed>, TxError> {
        if requests.is_empty() {
            return Ok(None);
        }
        let shared = Arc::clone(&self.shared);
        let trouble = match fast_path::take(&shared, self.link().await?, requests).await {
            Ok(done) => {
                shared.count_trips(done.is_some());
                return Ok(done);
            }
            Err(trouble) => trouble,
        };
        shared.count_trips(false);
        self.reset_connection(&trouble).await;
        match trouble {
            // Nothing was done: the connection may be gone, somebody was in the way, or one of many is to blame. The long way knows what to do.
            TxError::Conflict(_)
            | TxError::ConnectionLost(_)
            | TxError::Refused(_)
            | TxError::NeedsExclusive
            | TxError::TooLarge
            | TxError::Damaged(_)
            | TxError::NotStorable => Ok(None),
            TxError::Unknown(_) => Err(trouble),
        }
    }

    /// Where one of many is the culprit, the others need not suffer.
    async fn split_batch(&mut self, batch: Vec<Request>, trouble: TxError) {
        let alone = batch.len() == 1;
        let one_is_to_blame = match trouble {
            TxError::Refused(_) | TxError::TooLarge | TxError::Damaged(_) | TxError::NotStorable => true,
            TxError::Conflict(_) | TxError::ConnectionLost(_) | TxError::Unknown(_) | TxError::NeedsExclusive => false,
        };
        if one_is_to_blame && !alone {
            for request in batch {
                Box::pin(self.serve(vec![request])).await;
            }
            return;
        }
        let held_up = self.lock_waiters.is_some() && trouble.is_lock_timeout();
        if held_up && !alone {
            let locks = std::mem::replace(&mut self.locks, LOCK_TIMEOUT_SPLIT);
            let size = if batch.len() > SINGLES_MAX { batch.len().div_ceil(2) } else { 1 };
            let mut rest = batch.into_iter().peekable();
            while rest.peek().is_some() {
                Box::pin(self.serve(rest.by_ref().take(size).collect())).await;
            }
            self.locks = locks;
            return;
        }
        if let Some(patient) = self.lock_waiters.as_ref().filter(|_| held_up) {
            for request in batch {
                if let Err(refused) = patient.send(request).await {
                    refused.0.fail(closed());
                }
            }
            return;
        }
        let error = trouble.into_store_error();
        batch.into_iter().for_each(|request| request.fail(error.clone()));
    }

    /// One transaction, again and again while others are in its way. Only what was certainly not committed is done again.
    pub(crate) async fn run_transaction(
        &mut self,
        requests: &[Request],
    ) -> Result<crate::transaction::Committed, TxError> {
        let shared = Arc::clone(&self.shared);
        if let Some(done) = self.quick(requests).await? {
            return Ok(done);
        }
        let (hurried, locks) = (self.lock_waiters.is_some(), self.locks);
        let (mut alone, mut links) = (false, 0);
        let mut attempt = 0;
        loop {
            let link = self.link().await?;
            let trouble = match Transaction::new(&shared, link, alone, locks).execute(requests).await {
                Ok(done) => return Ok(done),
                Err(trouble) => trouble,
            };
            self.reset_connection(&trouble).await;
            let held_up = trouble.is_lock_timeout();
            if held_up && hurried {
                return Err(trouble);
            }
            if let TxError::NeedsExclusive = trouble
                && !alone
            {
                alone = true;
            } else if let TxError::Conflict(_) = trouble
                && attempt < attempts_max(requests, held_up, alone)
            {
                attempt += 1;
                pause(attempt).await;
            } else if let TxError::ConnectionLost(_) = trouble
                && links < RECONNECTS_MAX
            {
                links += 1;
            } else {
                return Err(trouble);
            }
        }
    }

    pub(crate) async fn link(&mut self) -> Result<&Connection, TxError> {
        if self.link.as_ref().is_none_or(Connection::closed)
            && let Some(old) = self.link.replace(self.shared.link().await?)
        {
            old.discard();
        }
        self.link.as_ref().ok_or_else(|| TxError::ConnectionLost(ErrorMessage("there is no connection".to_owned())))
    }

    /// After a transaction that failed: the connection is made good, or let go.
    pub(crate) async fn reset_connection(&mut self, trouble: &TxError) {
        let good = match &self.link {
            Some(link) if trouble.connection_usable() => link.roll_back().await,
            Some(_) | None => false,
        };
        if !good && let Some(link) = self.link.take() {
            link.discard();
        }
    }
}

/// Time does not wait for those who change queues; they have patience.
fn attempts_max(requests: &[Request], held_up: bool, alone: bool) -> u32 {
    let ticks = requests.iter().any(|request| matches!(request, Request::Tick(..)));
    match (held_up, alone) {
        (true, true) if !ticks => EXCLUSIVE_ATTEMPTS_MAX,
        (true, false) => LOCK_TIMEOUT_ATTEMPTS_MAX,
        (true, true) | (false, _) => ATTEMPTS_MAX,
    }
}

/// Longer each time, and not the same for everybody.
async fn pause(attempt: u32) {
    let mut rng = longshore_store::OsRng::default();
    let rng: &mut dyn longshore_core::rng::Rng = &mut rng;
    let longest = 2_u64.saturating_pow(attempt.min(7));
    tokio::time::sleep(Duration::from_millis(rng.uniform_inclusive(longest))).await;
}

/// The writer was gone before it had begun.
pub(crate) fn closed() -> StoreError {
    StoreError::not_applied(ErrorMessage("the store is being closed".to_owned()))
}
