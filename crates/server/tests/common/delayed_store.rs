//! A store that delays submissions and claims, and reports the health that a test sets.

use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::Timestamp;
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
use longshore_store::{
    ChangeFeed, Grant, JobQuery, JobRef, MemberQuery, Page, Park, QueuePosition, QueueStats, Store, StoreFuture,
    StoreHealth, StoreReader, WorkflowPage, WorkflowQuery,
};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Slow {
    store: Arc<dyn Store>,
    held: watch::Sender<bool>,
    /// Calls that reached the gate.
    came: watch::Sender<usize>,
    /// The reported health.
    health: watch::Sender<StoreHealth>,
}

impl Slow {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, held: watch::Sender::new(false), came: watch::Sender::new(0), health: watch::Sender::default() }
    }

    pub(crate) fn set_health(&self, health: StoreHealth) {
        self.health.send_replace(health);
    }

    pub(crate) fn hold(&self) {
        self.came.send_replace(0);
        self.held.send_replace(true);
    }

    /// Waits until this many submissions and claims reached the closed gate.
    pub(crate) async fn reached(&self, calls: usize) {
        self.came.subscribe().wait_for(|came| *came >= calls).await.unwrap();
    }

    async fn gate(&self) {
        self.came.send_modify(|came| *came += 1);
        self.held.subscribe().wait_for(|held| !held).await.unwrap();
    }

    pub(crate) fn let_go(&self) {
        self.held.send_replace(false);
    }
}

impl Store for Slow {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        Box::pin(async move {
            self.gate().await;
            self.store.submit(request).await
        })
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        Box::pin(async move {
            // The leases are committed; the grant is delayed.
            let answer = self.store.claim_or_park(request, park).await;
            self.gate().await;
            answer
        })
    }

    fn parked_claims(&self) -> usize {
        self.store.parked_claims()
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        self.store.hold_grants(hold)
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        self.store.settle(settlements)
    }

    fn extend(&self, extensions: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.store.extend(extensions)
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        self.store.admin(command)
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        self.store.tick(budget)
    }

    fn wakeups(&self) -> ChangeFeed {
        self.store.wakeups()
    }
}

impl StoreReader for Slow {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        let health = self.health.borrow().clone();
        Box::pin(async move { Ok(health) })
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

    fn totals(&self) -> StoreFuture<'_, Totals> {
        self.store.totals()
    }

    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64> {
        self.store.count_ahead(place)
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
