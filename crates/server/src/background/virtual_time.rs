//! Virtual time: the clock stands still until a request advances it.
//!
//! `VirtualTime` wraps the store. A command responds after all work that it made due. Commands wait
//! while the clock is being advanced. Real time has no effect.

use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::refusal::Refusal;
use longshore_core::{Duration, Timestamp};
use longshore_engine::{ClaimRequest, Ticked};
use longshore_store::{Clock, Grant, Park, Store, StoreError, StoreFuture, StoreLayer, VirtualClock};
use tokio::sync::RwLock;

use crate::operations::engine::OperationEngine;
use crate::options::SaveVirtualTime;
use crate::schedules::engine::ScheduleEngine;

const TICK_JOBS_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

#[derive(Debug)]
pub(crate) struct VirtualTime {
    store: Arc<dyn Store>,
    clock: Arc<VirtualClock>,
    kept: Option<SaveVirtualTime>,
    schedules: Arc<ScheduleEngine>,
    operations: Arc<OperationEngine>,
    /// Shared by commands, exclusive for an advance.
    gate: RwLock<()>,
}

impl VirtualTime {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<VirtualClock>,
        kept: Option<SaveVirtualTime>,
        schedules: Arc<ScheduleEngine>,
        operations: Arc<OperationEngine>,
    ) -> Self {
        Self { store, clock, kept, schedules, operations, gate: RwLock::new(()) }
    }

    /// Processes what is due at the instant at which the server starts.
    pub(crate) async fn start(&self) -> Result<(), StoreError> {
        self.refresh().await?;
        self.process_instant().await.map(drop)
    }

    async fn refresh(&self) -> Result<(), StoreError> {
        self.schedules.refresh(&*self.store).await?;
        self.operations.refresh(&*self.store).await
    }

    /// Advances the clock by `by`. It stops at every deadline and processes what is due there.
    pub(crate) async fn advance(&self, by: Duration) -> Result<Timestamp, StoreError> {
        let _alone = self.gate.write().await;
        let target = self.clock.now() + by;
        if let Some(SaveVirtualTime(keep)) = &self.kept {
            keep(target).map_err(StoreError::not_applied)?;
        }
        self.store.hold_grants(true).await?;
        let advanced = self.advance_to(target).await;
        self.store.hold_grants(false).await?;
        advanced.map(|()| self.clock.now())
    }

    async fn advance_to(&self, target: Timestamp) -> Result<(), StoreError> {
        self.refresh().await?;
        let mut next = self.process_instant().await?;
        while let Some(due) = next.filter(|due| *due <= target) {
            self.clock.advance_to(due);
            next = self.process_instant().await?;
        }
        self.clock.advance_to(target);
        Ok(())
    }

    /// Processes everything that is due at this instant: jobs, then schedules, then operations,
    /// then the jobs that these have made due. Returns the next deadline.
    async fn process_instant(&self) -> Result<Option<Timestamp>, StoreError> {
        loop {
            let next = self.tick_until_idle().await?;
            // The gate is held: schedules and operations write to the inner store.
            let has_worked = self.schedules.process_in_order(&*self.store).await?
                || self.operations.process_in_order(&*self.store).await?;
            if !has_worked {
                let due = self.schedules.next_due().into_iter().chain(self.operations.next_due());
                return Ok(next.into_iter().chain(due).min());
            }
        }
    }

    /// Ticks until nothing is due at this instant. Returns the next deadline.
    async fn tick_until_idle(&self) -> Result<Option<Timestamp>, StoreError> {
        loop {
            let ticked = self.store.tick(TICK_JOBS_MAX).await?;
            if ticked.next.is_none_or(|next| next > self.clock.now()) {
                return Ok(ticked.next);
            }
        }
    }
}

impl StoreLayer for VirtualTime {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    /// Runs a write, then processes everything that it made due.
    fn write<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let shared = self.gate.read().await;
            let result = call(&*self.store).await?;
            self.tick_until_idle().await?;
            drop(shared);
            // An operation may have been started, or its canary may have ended.
            if self.operations.is_due(self.clock.now()) {
                let _alone = self.gate.write().await;
                self.process_instant().await?;
            }
            Ok(result)
        })
    }

    /// A claim that may wait does not hold the gate, because an advance would wait for it. The hold
    /// on grants keeps the claim unserved during an advance.
    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        match park {
            Park::No => self.write(move |store| store.claim_or_park(request, Park::No)),
            Park::Until(_) => self.store.claim_or_park(request, park),
        }
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        self.store.tick(budget)
    }
}
