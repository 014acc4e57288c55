//! Batch handlers: jobs of one type are collected and run by one call.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::context::JobContext;
use super::handler::{AnyHandler, BatchHandler, BoxFuture, JobItem, StateSource, decode};
use super::outcome::{JobOutcome, system_failure};

/// A job that waits for its batch.
struct BatchEntry<P> {
    item: JobItem<P>,
    outcome: oneshot::Sender<JobOutcome>,
}

/// Collects up to `size` jobs, or those of `wait` after the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimits {
    pub(super) size: usize,
    pub(super) wait: Duration,
}

/// Returns a handler that collects jobs. Its task ends when the worker drops the handler.
pub(super) fn collect<M: 'static, H: BatchHandler<M>>(
    handler: H,
    limits: BatchLimits,
    states: StateSource,
) -> Arc<dyn AnyHandler> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(run_batches(Arc::new(handler), limits, states, receiver));
    Arc::new(move |context: JobContext| -> BoxFuture<'static, JobOutcome> {
        let payload = match decode::<H::Payload>(context.job()) {
            Ok(payload) => payload,
            Err(bad) => return Box::pin(std::future::ready(bad)),
        };
        let (outcome, answer) = oneshot::channel();
        let sent = sender.send(BatchEntry { item: JobItem { context, payload }, outcome });
        Box::pin(async move {
            match (sent, answer.await) {
                (Ok(()), Ok(outcome)) => outcome,
                _ => system_failure("no_outcome", "the batch handler returned too few outcomes".to_owned()),
            }
        })
    })
}

async fn run_batches<M: 'static, H: BatchHandler<M>>(
    handler: Arc<H>,
    limits: BatchLimits,
    states: StateSource,
    mut receiver: mpsc::UnboundedReceiver<BatchEntry<H::Payload>>,
) {
    while let Some(first) = receiver.recv().await {
        let end = Instant::now() + limits.wait;
        let mut batch = vec![first];
        while batch.len() < limits.size {
            match timeout_at(end, receiver.recv()).await {
                Ok(Some(entry)) => batch.push(entry),
                Ok(None) | Err(_) => break,
            }
        }
        // Jobs that were released meanwhile, or whose lease was lost, run elsewhere.
        batch.retain(|entry| !entry.outcome.is_closed());
        if batch.is_empty() {
            continue;
        }
        let (handler, states) = (Arc::clone(&handler), states.clone());
        tokio::spawn(async move { run_batch(handler.as_ref(), &states, batch).await });
    }
}

async fn run_batch<M: 'static, H: BatchHandler<M>>(
    handler: &H,
    states: &StateSource,
    batch: Vec<BatchEntry<H::Payload>>,
) {
    let (items, waiters): (Vec<_>, Vec<_>) = batch.into_iter().map(|entry| (entry.item, entry.outcome)).unzip();
    let call = AssertUnwindSafe(async { handler.call(states, items).await });
    let outcomes = call
        .catch_unwind()
        .await
        .unwrap_or_else(|_| vec![system_failure("panic", "the batch handler panicked".to_owned()); waiters.len()]);
    // A waiter without an outcome fails by its closed channel.
    for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
        drop(waiter.send(outcome));
    }
}
