//! One fresh store, its clock, and the way to open it again.

use std::sync::Arc;

use longshore_core::Timestamp;
use longshore_store::{Store, VirtualClock};

use crate::engine_subject::START;

type Reopen = Box<dyn Fn() -> Arc<dyn Store>>;

/// What a case is played on. Dropped after it: the store first, then what [`World::reopened_by`] and [`World::keeping`] hold.
pub struct StoreFixture {
    /// Absent only while it is closed.
    store: Option<Arc<dyn Store>>,
    clock: Arc<VirtualClock>,
    reopen: Option<Reopen>,
    kept: Vec<Box<dyn std::any::Any>>,
}

/// The clock of a fresh world; every proof starts at this instant.
pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Timestamp::from_millis(START)))
}

impl StoreFixture {
    /// An empty store that goes by this clock, which came from [`clock`]. Nobody else ticks it, and this is the only handle on it.
    pub fn new(store: Arc<dyn Store>, clock: Arc<VirtualClock>) -> Self {
        Self { store: Some(store), clock, reopen: None, kept: Vec::new() }
    }

    /// Durable stores: opens the same data again, by the same clock, after the last handle on the store was dropped.
    #[must_use]
    pub fn reopened_by(self, reopen: impl Fn() -> Arc<dyn Store> + 'static) -> Self {
        Self { reopen: Some(Box::new(reopen)), ..self }
    }

    /// Keeps something as long as the world lasts: a directory, a server.
    #[must_use]
    pub fn keeping(mut self, guard: impl std::any::Any) -> Self {
        self.kept.push(Box::new(guard));
        self
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        self.store.as_ref().expect("the store is open")
    }

    pub fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    /// Whether the store can be closed and opened again.
    pub fn durable(&self) -> bool {
        self.reopen.is_some()
    }

    pub fn reopen(&mut self) {
        self.reopen_after(|_| {});
    }

    /// Closes the store, lets something happen, and opens it again.
    pub fn reopen_after(&mut self, meanwhile: impl FnOnce(&VirtualClock)) {
        let reopen = self.reopen.as_ref().expect("this store can be opened again");
        let store = self.store.take().expect("the store is open");
        assert_eq!(Arc::strong_count(&store), 1, "somebody still holds the store: it cannot be closed");
        drop(store);
        meanwhile(&self.clock);
        self.store = Some(reopen());
    }
}

impl std::fmt::Debug for StoreFixture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("store", &self.store).field("clock", &self.clock).finish_non_exhaustive()
    }
}
