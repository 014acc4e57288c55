//! A store that delays submissions and claims, and reports the health that a test sets.

use std::sync::Arc;

use longshore_core::refusal::Refusal;
use longshore_engine::{BatchRefusal, ClaimRequest, Settlement, SubmitRequest, Submitted};
use longshore_store::{Grant, Park, SettledGrant, Store, StoreFuture, StoreHealth, StoreLayer};
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

impl StoreLayer for Slow {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

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

    fn settle_and_claim(
        &self,
        settlements: Vec<Settlement>,
        request: ClaimRequest,
    ) -> StoreFuture<'_, Result<SettledGrant, Refusal>> {
        Box::pin(async move {
            let answer = self.store.settle_and_claim(settlements, request).await;
            self.gate().await;
            answer
        })
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        let health = self.health.borrow().clone();
        Box::pin(async move { Ok(health) })
    }
}
