//! Batching: each worker takes the requests that wait, executes them in one transaction, and
//! answers them after the commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_store::StoreError;
use tokio::sync::{Mutex, Notify, mpsc};

use crate::error::{ErrorMessage, TxError};
use crate::node::Node;
use crate::request::{QueuedRequest, RequestSender, TxRequest, TxResponse};
use crate::retry::{LockWait, TransactionRunner};
use crate::tick;
use crate::transaction::Committed;

/// Commands of one transaction, at most.
const COMMANDS_MAX: usize = 1_000;
/// A batch of this size does not linger.
const BATCH_TARGET: usize = 32;
const BATCH_LINGER: Duration = Duration::from_millis(5);
/// Lock timeout of a batch.
const LOCK_TIMEOUT_BATCH: Duration = Duration::from_millis(300);
/// Lock timeout of the parts of a batch that has timed out.
const LOCK_TIMEOUT_SPLIT: Duration = Duration::from_millis(50);
/// Lock timeout of a request that waits alone.
const LOCK_TIMEOUT_SINGLE: Duration = Duration::from_secs(10);
/// A batch of at most this size is split into single requests, a larger one into halves.
const SINGLES_MAX: usize = 8;

/// Requests of one kind, shared by the workers that take them.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    requests: Mutex<mpsc::Receiver<QueuedRequest>>,
    /// Commands in transactions that are in flight.
    in_flight: AtomicUsize,
    batch_ended: Notify,
}

impl RequestQueue {
    pub(crate) fn new(requests: mpsc::Receiver<QueuedRequest>) -> Self {
        Self { requests: Mutex::new(requests), in_flight: AtomicUsize::new(0), batch_ended: Notify::new() }
    }

    /// Takes the next batch. While another batch is in flight, lingers until this one is as large
    /// (at most [`BATCH_TARGET`]) or [`BATCH_LINGER`] has passed. Clients answered together tend
    /// to send their next request together; without the linger, batches would degrade to size one.
    async fn next(&self) -> Option<RequestBatch<'_>> {
        let mut requests = self.requests.lock().await;
        let first = requests.recv().await?;
        let mut batch =
            RequestBatch { commands: first.request.commands(), requests: vec![first], queue: self, is_counted: false };
        loop {
            tokio::task::yield_now().await;
            if batch.fill(&mut requests) {
                continue;
            }
            if batch.commands >= self.in_flight.load(Ordering::Acquire).min(BATCH_TARGET) {
                break;
            }
            tokio::select! {
                () = self.batch_ended.notified() => {}
                () = tokio::time::sleep(BATCH_LINGER) => break,
                next = requests.recv() => match next {
                    Some(next) => batch.add(next),
                    None => break,
                },
            }
        }
        self.in_flight.fetch_add(batch.commands, Ordering::AcqRel);
        batch.is_counted = true;
        Some(batch)
    }
}

/// Requests that share a transaction.
struct RequestBatch<'a> {
    requests: Vec<QueuedRequest>,
    commands: usize,
    queue: &'a RequestQueue,
    /// Its commands are part of `in_flight`.
    is_counted: bool,
}

impl RequestBatch<'_> {
    fn add(&mut self, request: QueuedRequest) {
        self.commands += request.request.commands();
        self.requests.push(request);
    }

    /// Adds requests that wait. Returns whether there were any and the batch has room for more.
    fn fill(&mut self, requests: &mut mpsc::Receiver<QueuedRequest>) -> bool {
        let before = self.commands;
        while self.commands < COMMANDS_MAX
            && let Ok(next) = requests.try_recv()
        {
            self.add(next);
        }
        self.commands > before && self.commands < COMMANDS_MAX
    }
}

impl Drop for RequestBatch<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            self.queue.in_flight.fetch_sub(self.commands, Ordering::AcqRel);
            self.queue.batch_ended.notify_one();
        }
    }
}

/// Serves batches until every sender is gone.
pub(crate) async fn run(node: Arc<Node>, queue: Arc<RequestQueue>, lock_waiters: Option<RequestSender>) {
    let mut worker = BatchWorker::new(node, lock_waiters);
    while let Some(mut batch) = queue.next().await {
        worker.serve(std::mem::take(&mut batch.requests)).await;
    }
}

/// Serves requests that wait for locks of other transactions, one at a time.
pub(crate) async fn run_lock_waiter(node: Arc<Node>, queue: Arc<RequestQueue>) {
    let mut worker = BatchWorker::new(node, None);
    loop {
        let next = queue.requests.lock().await.recv().await;
        let Some(request) = next else { return };
        worker.serve(vec![request]).await;
    }
}

/// Queues of requests that the fast path has not applied.
#[derive(Clone, Debug)]
pub(crate) struct FallbackQueues {
    pub claims: RequestSender,
    pub settles: RequestSender,
}

impl FallbackQueues {
    async fn send(&self, requests: Vec<QueuedRequest>) {
        for request in requests {
            let queue = if request.request.is_claim() { &self.claims } else { &self.settles };
            send(queue, request).await;
        }
    }
}

async fn send(queue: &RequestSender, request: QueuedRequest) {
    if let Err(refused) = queue.send(request).await {
        refused.0.request.fail(closed());
    }
}

/// Serves claims, settlements and heartbeats by the fast path, and passes on the others.
pub(crate) async fn run_hot_path(node: Arc<Node>, queue: Arc<RequestQueue>, fallback: FallbackQueues) {
    let mut worker = BatchWorker::new(node, None);
    while let Some(mut batch) = queue.next().await {
        let requests = std::mem::take(&mut batch.requests);
        let is_claim = |request: &QueuedRequest| request.request.is_claim();
        let settlements: usize =
            requests.iter().filter(|request| !is_claim(request)).map(|request| request.request.commands()).sum();
        // Many settlements are worth a transaction of their own, in parallel to the claims.
        let (requests, settlements) =
            if settlements >= BATCH_TARGET { requests.into_iter().partition(is_claim) } else { (requests, Vec::new()) };
        fallback.send(settlements).await;
        let requests = requests.into_iter().map(|request| request.request).collect();
        let missed = worker.try_fast_path(requests).await;
        fallback.send(missed.into_iter().map(QueuedRequest::after_fast_path).collect()).await;
    }
}

pub(crate) struct BatchWorker {
    runner: TransactionRunner,
    /// Where requests go that wait for a lock. `None`: this worker waits.
    lock_waiters: Option<RequestSender>,
    lock_timeout: Duration,
}

impl BatchWorker {
    pub(crate) fn new(node: Arc<Node>, lock_waiters: Option<RequestSender>) -> Self {
        let lock_timeout = if lock_waiters.is_some() { LOCK_TIMEOUT_BATCH } else { LOCK_TIMEOUT_SINGLE };
        Self { runner: TransactionRunner::new(node), lock_waiters, lock_timeout }
    }

    /// Answers all requests of a batch, or passes them on to the lock waiters.
    async fn serve(&mut self, batch: Vec<QueuedRequest>) {
        let tried_fast_path = batch.iter().any(|request| request.tried_fast_path);
        let mut requests: Vec<TxRequest> = batch.into_iter().map(|request| request.request).collect();
        self.drop_unserved(&mut requests);
        if requests.iter().any(|request| matches!(request, TxRequest::Tick(..))) {
            for request in requests {
                self.serve_tick_or(request).await;
            }
            return;
        }
        if !tried_fast_path {
            requests = self.try_fast_path(requests).await;
        }
        self.execute(requests).await;
    }

    /// A batch with a tick is served one by one: a tick must see the commits before it.
    async fn serve_tick_or(&mut self, request: TxRequest) {
        let TxRequest::Tick(budget, _) = request else { return self.execute(vec![request]).await };
        let lock_wait = self.lock_wait();
        match tick::tick(&mut self.runner, budget, lock_wait).await {
            Ok(ticked) => request.answer(TxResponse::Tick(ticked)),
            Err(error) => request.fail(error),
        }
    }

    fn lock_wait(&self) -> LockWait {
        LockWait { timeout: self.lock_timeout, retries: self.lock_waiters.is_none() }
    }

    /// Tries the fast path. Returns the requests if it has not applied them.
    async fn try_fast_path(&mut self, mut requests: Vec<TxRequest>) -> Vec<TxRequest> {
        self.drop_unserved(&mut requests);
        if requests.is_empty() {
            return requests;
        }
        match self.runner.execute_fast(&requests).await {
            Ok(Some(committed)) => self.answer(requests, committed),
            Ok(None) => return requests,
            Err(error) => fail_all(requests, error),
        }
        Vec::new()
    }

    /// Removes claims whose caller is gone, and answers claims of workers that do not run.
    /// Settlements that came with them stay.
    fn drop_unserved(&self, requests: &mut Vec<TxRequest>) {
        let directives = &self.runner.node.directives;
        let can_claim =
            |request: &TxRequest| directives.can_claim(request.claim().and_then(|claim| claim.terms.worker.as_ref()));
        requests.retain(|request| !request.is_abandoned());
        requests.iter_mut().for_each(TxRequest::drop_abandoned_claim);
        if requests.iter().all(can_claim) {
            return;
        }
        for mut request in std::mem::take(requests) {
            if can_claim(&request) || request.drop_claim() {
                requests.push(request);
            } else {
                request.answer(TxResponse::Claim(Ok(Vec::new())));
            }
        }
    }

    /// Executes requests by the slow path.
    async fn execute(&mut self, requests: Vec<TxRequest>) {
        if requests.is_empty() {
            return;
        }
        match self.runner.execute(&requests, self.lock_wait()).await {
            Ok(committed) => self.answer(requests, committed),
            Err(error) => self.split_batch(requests, error).await,
        }
    }

    fn answer(&self, requests: Vec<TxRequest>, committed: Committed) {
        self.runner.node.publish_effects(committed.effects, committed.deadline);
        requests.into_iter().zip(committed.answers).for_each(|(request, answer)| request.answer(answer));
    }

    /// Executes the parts of a failed batch if one request may be the cause.
    async fn split_batch(&mut self, mut requests: Vec<TxRequest>, error: TxError) {
        let is_single = requests.len() == 1;
        let is_caused_by_request = match error {
            TxError::Refused(_) | TxError::TooLarge | TxError::Damaged(_) | TxError::NotStorable => true,
            TxError::Conflict(_) | TxError::ConnectionLost(_) | TxError::Unknown(_) | TxError::NeedsExclusive => false,
        };
        if is_caused_by_request && !is_single {
            for request in requests {
                Box::pin(self.execute(vec![request])).await;
            }
            return;
        }
        if matches!(error, TxError::Damaged(_)) && requests.iter_mut().any(TxRequest::drop_claim) {
            return Box::pin(self.execute(requests)).await;
        }
        let lock_waiters = self.lock_waiters.clone().filter(|_| error.is_lock_timeout());
        match lock_waiters {
            Some(_) if !is_single => {
                let lock_timeout = std::mem::replace(&mut self.lock_timeout, LOCK_TIMEOUT_SPLIT);
                let size = if requests.len() > SINGLES_MAX { requests.len().div_ceil(2) } else { 1 };
                let mut rest = requests.into_iter().peekable();
                while rest.peek().is_some() {
                    Box::pin(self.execute(rest.by_ref().take(size).collect())).await;
                }
                self.lock_timeout = lock_timeout;
            }
            Some(lock_waiters) => {
                for request in requests {
                    send(&lock_waiters, QueuedRequest::after_fast_path(request)).await;
                }
            }
            None => fail_all(requests, error),
        }
    }
}

fn fail_all(requests: Vec<TxRequest>, error: TxError) {
    let error = error.into_store_error();
    requests.into_iter().for_each(|request| request.fail(error.clone()));
}

/// The store was closed before the request was sent.
pub(crate) fn closed() -> StoreError {
    StoreError::not_applied(ErrorMessage("store is closed".to_owned()))
}
