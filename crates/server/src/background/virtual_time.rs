//! A store whose clock advances only on request.
//!
//! After each command the store ticks until no work is due, before the command is answered. While
//! the clock advances, commands wait. Real time has no effect.

use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::totals::Totals;
use longshore_core::workflow::Workflow;
use longshore_core::{Duration, Timestamp};
use longshore_store::{
    ChangeFeed, Clock, Grant, JobQuery, JobRef, MemberQuery, Page, Park, QueuePosition, QueueStats, Store, StoreError,
    StoreFuture, StoreHealth, StoreMetrics, StoreReader, VirtualClock, WorkflowPage, WorkflowQuery,
};
use tokio::sync::RwLock;

use crate::options::SaveVirtualTime;

const TICK_JOBS_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

#[derive(Debug)]
pub(crate) struct VirtualTime {
    store: Arc<dyn Store>,
    clock: Arc<VirtualClock>,
    save: Option<SaveVirtualTime>,
    /// Commands hold it shared, an advance holds it exclusively.
    gate: RwLock<()>,
}

impl VirtualTime {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<VirtualClock>, save: Option<SaveVirtualTime>) -> Self {
        Self { store, clock, save, gate: RwLock::new(()) }
    }

    /// Advances the clock by `by`, from deadline to deadline, and ticks at each of them.
    pub(crate) async fn advance(&self, by: Duration) -> Result<Timestamp, StoreError> {
        let _exclusive = self.gate.write().await;
        let target = self.clock.now() + by;
        if let Some(SaveVirtualTime(save)) = &self.save {
            save(target).map_err(StoreError::not_applied)?;
        }
        self.store.hold_grants(true).await?;
        let advanced = self.advance_to(target).await;
        self.store.hold_grants(false).await?;
        advanced.map(|()| self.clock.now())
    }

    async fn advance_to(&self, target: Timestamp) -> Result<(), StoreError> {
        let mut next = self.tick_until_idle().await?;
        while let Some(due) = next.filter(|due| *due <= target) {
            self.clock.advance_to(due);
            next = self.tick_until_idle().await?;
        }
        self.clock.advance_to(target);
        Ok(())
    }

    /// Ticks until no work is due. Returns the next deadline.
    pub(crate) async fn tick_until_idle(&self) -> Result<Option<Timestamp>, StoreError> {
        loop {
            let ticked = self.store.tick(TICK_JOBS_MAX).await?;
            if ticked.next.is_none_or(|next| next > self.clock.now()) {
                return Ok(ticked.next);
            }
        }
    }

    fn run_then_tick<'a, T: Send + 'a>(
        &'a self,
        command: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let _shared = self.gate.read().await;
            let result = command().await?;
            self.tick_until_idle().await?;
            Ok(result)
        })
    }
}

impl Store for VirtualTime {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        self.run_then_tick(move || self.store.submit(request))
    }

    /// A parked claim does not hold the gate, because an advance would wait for it. `hold_grants`
    /// keeps it parked during an advance.
    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        match park {
            Park::No => self.run_then_tick(move || self.store.claim_or_park(request, Park::No)),
            Park::Until(_) => self.store.claim_or_park(request, park),
        }
    }

    fn parked_claims(&self) -> usize {
        self.store.parked_claims()
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        self.store.hold_grants(hold)
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        self.run_then_tick(move || self.store.settle(settlements))
    }

    fn extend(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.run_then_tick(move || self.store.extend(heartbeats))
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        self.run_then_tick(move || self.store.admin(command))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        self.store.tick(budget)
    }

    fn wakeups(&self) -> ChangeFeed {
        self.store.wakeups()
    }
}

impl StoreReader for VirtualTime {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        self.store.health()
    }

    fn metrics(&self) -> StoreFuture<'_, StoreMetrics> {
        self.store.metrics()
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        self.store.get(jobs)
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        self.store.payloads(jobs)
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        self.store.list(query)
    }

    fn count_ahead(&self, position: QueuePosition) -> StoreFuture<'_, u64> {
        self.store.count_ahead(position)
    }

    fn totals(&self) -> StoreFuture<'_, Totals> {
        self.store.totals()
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        self.store.workflow(id)
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        self.store.workflows(query)
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        self.store.members(query)
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        self.store.queue(name)
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        self.store.queues()
    }
}
