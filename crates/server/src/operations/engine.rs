//! Which operations are due, and the task that works on them in real time.
//!
//! Several servers may read an operation. The first that writes its record holds it for some
//! seconds, and renews the hold with every slice. Another server takes over when the hold expires.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration as Wait;

use futures_util::{StreamExt, stream};
use longshore_core::Timestamp;
use longshore_core::id::OperationId;
use longshore_core::rng::Rng;
use longshore_engine::SystemKind;
use longshore_store::{OsRng, Store, StoreError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::storage;
use super::work::{self, NextStep, WorkingServer};
use crate::background::dead_letters::DeadLetters;
use crate::state::AppState;

/// How often the version of the operations is read, and how often canary jobs are checked.
const POLL_INTERVAL: Wait = Wait::from_millis(500);
/// Pause after an error of the store.
const PAUSE_AFTER_FAILURE: Wait = Wait::from_secs(1);
/// Operations that one server works on at once.
const CONCURRENCY: usize = 8;
/// Operations with work to do that are read.
const ACTIVE_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct OperationEngine {
    server: WorkingServer,
    state: Mutex<DueOperations>,
    changed: Notify,
    rng: Mutex<OsRng>,
    dead_letters: Arc<DeadLetters>,
}

#[derive(Debug, Default)]
struct DueOperations {
    version: Option<u64>,
    next: BTreeMap<OperationId, NextStep>,
    /// Operations that were created here.
    created: u64,
}

impl OperationEngine {
    /// `is_alone`: no other server uses the store.
    pub(crate) fn new(is_alone: bool, dead_letters: Arc<DeadLetters>) -> Self {
        let mut rng = OsRng::default();
        let server = WorkingServer { number: rng.next_u64(), is_alone };
        Self { server, state: Mutex::default(), changed: Notify::new(), rng: Mutex::new(rng), dead_letters }
    }

    /// Returns the id of a new operation.
    pub(crate) fn new_id(&self, now: Timestamp) -> OperationId {
        let mut state = self.state.lock();
        state.created += 1;
        OperationId::at(now, state.created, &mut *self.rng.lock())
    }

    /// Requests that an operation is read again.
    pub(crate) fn on_change(&self, id: OperationId) {
        self.state.lock().next.insert(id, NextStep::Now);
        self.changed.notify_one();
    }

    /// Returns when the next operation is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let state = self.state.lock();
        state.next.values().filter_map(|next| if let NextStep::At(at) = next { Some(*at) } else { None }).min()
    }

    /// Reads which operations have work to do, if any was changed since the last call.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<(), StoreError> {
        let version = store.system_version(SystemKind::Operation).await?;
        if self.state.lock().version == Some(version) {
            return Ok(());
        }
        let active = storage::active(store, ACTIVE_MAX).await?;
        let mut state = self.state.lock();
        state.next.extend(active.into_iter().map(|id| (id, NextStep::Now)));
        state.version = Some(version);
        Ok(())
    }

    fn due(&self, now: Timestamp) -> Vec<OperationId> {
        let is_due = |next: &NextStep| match next {
            NextStep::Now | NextStep::Watch => true,
            NextStep::At(at) => *at <= now,
            NextStep::Rest | NextStep::Settled => false,
        };
        self.state.lock().next.iter().filter(|(_, next)| is_due(next)).map(|(id, _)| *id).collect()
    }

    /// Whether an operation may have work at this time.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        !self.due(now).is_empty()
    }

    async fn step(&self, store: &dyn Store, id: OperationId) -> Result<NextStep, StoreError> {
        let next = work::step(store, self.server, id, &self.dead_letters).await?;
        let mut state = self.state.lock();
        match next {
            NextStep::Settled => drop(state.next.remove(&id)),
            NextStep::Now | NextStep::At(_) | NextStep::Watch | NextStep::Rest => drop(state.next.insert(id, next)),
        }
        Ok(next)
    }

    /// Does all steps that are due now, one operation after the other. Returns whether anything was
    /// done.
    pub(crate) async fn process_in_order(&self, store: &dyn Store) -> Result<bool, StoreError> {
        let mut has_worked = false;
        for id in self.due(store.now()) {
            while self.step(store, id).await? == NextStep::Now {
                has_worked = true;
            }
        }
        Ok(has_worked)
    }

    /// Does one step of every operation that is due.
    async fn process_at_once(&self, store: &dyn Store) -> Result<(), StoreError> {
        let step = |id: OperationId| async move { self.step(store, id).await.map(drop) };
        let steps = stream::iter(self.due(store.now())).map(step).buffer_unordered(CONCURRENCY);
        steps.fold(Ok(()), |all, one| async move { all.and(one) }).await
    }

    /// Whether a step is due at once.
    fn has_work(&self, now: Timestamp) -> bool {
        self.state.lock().next.values().any(|next| match next {
            NextStep::Now => true,
            NextStep::At(at) => *at <= now,
            NextStep::Watch | NextStep::Rest | NextStep::Settled => false,
        })
    }

    async fn release_all(&self, store: &dyn Store) {
        let held: Vec<OperationId> = self.state.lock().next.keys().copied().collect();
        for id in held {
            if let Err(error) = work::release(store, self.server, id).await {
                tracing::debug!(%error, "cannot release an operation: another server continues it when the hold expires");
                return;
            }
        }
    }
}

/// Works on operations in real time until the server has drained.
pub(crate) async fn run(app: AppState) {
    loop {
        let worked = async {
            app.operations.refresh(&*app.store).await?;
            app.operations.process_at_once(&*app.store).await
        };
        let worked = tokio::select! {
            () = app.drained.cancelled() => break,
            worked = worked => worked,
        };
        let pause = match worked {
            Ok(()) if app.operations.has_work(app.now()) => Wait::ZERO,
            Ok(()) => {
                let until_due = app.operations.next_due().map(|due| due.since(app.now()).as_millis());
                until_due.map_or(POLL_INTERVAL, |millis| Wait::from_millis(millis).min(POLL_INTERVAL))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot process operations: retrying");
                app.on_store_error(&error);
                PAUSE_AFTER_FAILURE
            }
        };
        tokio::select! {
            () = app.drained.cancelled() => break,
            () = sleep(pause) => {}
            () = app.operations.changed.notified() => {}
        }
    }
    app.operations.release_all(&*app.store).await;
}
