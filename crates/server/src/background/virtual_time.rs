//! Time that stands still until somebody advances it.
//!
//! A store in virtual time, as routes see it: whatever a command made due is done before its answer is given, and while the clock is being
//! advanced commands wait. Nothing happens by the passage of real time.

use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::workflow::Workflow;
use longshore_core::{Duration, Timestamp};
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use longshore_store::{
    ChangeFeed, Clock, Grant, JobQuery, JobRef, MemberQuery, Page, Park, QueuePosition, QueueStats, Store, StoreError,
    StoreFuture, StoreHealth, StoreReader, VirtualClock, WorkflowPage, WorkflowQuery,
};
use tokio::sync::RwLock;

use crate::options::SaveVirtualTime;

const TICK_JOBS_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

#[derive(Debug)]
pub(crate) struct VirtualTime {
    store: Arc<dyn Store>,
    clock: Arc<VirtualClock>,
    kept: Option<SaveVirtualTime>,
    /// Commands share it, an advance has it alone.
    gate: RwLock<()>,
}

impl VirtualTime {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<VirtualClock>, kept: Option<SaveVirtualTime>) -> Self {
        Self { store, clock, kept, gate: RwLock::new(()) }
    }

    /// Moves the clock from one deadline to the next and does there what is due, until `by` has passed.
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
        let mut next = self.tick_until_idle().await?;
        while let Some(due) = next.filter(|due| *due <= target) {
            self.clock.advance_to(due);
            next = self.tick_until_idle().await?;
        }
        self.clock.advance_to(target);
        Ok(())
    }

    /// Ticks until nothing is due at this instant; says when something will be.
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
            let answer = command().await?;
            self.tick_until_idle().await?;
            Ok(answer)
        })
    }
}

impl Store for VirtualTime {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        self.run_then_tick(move || self.store.submit(request))
    }

    /// A claim that may wait does not hold the gate: an advance would have to wait for it. The hold keeps it unserved meanwhile.
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

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.run_then_tick(move || self.store.heartbeat(heartbeats))
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

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        self.store.get(jobs)
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        self.store.payloads(jobs)
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        self.store.list(query)
    }

    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64> {
        self.store.count_ahead(place)
    }

    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        self.store.ocypod_totals()
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
