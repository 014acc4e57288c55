//! A fresh store, its clock, and how to reopen it.

use std::sync::Arc;

use longshore_core::Timestamp;
use longshore_store::{Store, VirtualClock};

use crate::engine_subject::START;

type Reopen = Box<dyn Fn() -> Arc<dyn Store>>;

/// The store that a case runs on. On drop the store is closed first, then the guards of
/// [`StoreFixture::reopened_by`] and [`StoreFixture::keeping`] are dropped.
pub struct StoreFixture {
    /// `None` only while it is closed.
    store: Option<Arc<dyn Store>>,
    clock: Arc<VirtualClock>,
    reopen: Option<Reopen>,
    kept: Vec<Box<dyn std::any::Any>>,
}

/// Returns the clock of a fresh fixture. Every proof starts at the same instant.
pub fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(Timestamp::from_millis(START)))
}

impl StoreFixture {
    /// Takes an empty store that uses this clock, which came from [`clock`]. The fixture must hold
    /// the only handle, and no other component may tick the store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<VirtualClock>) -> Self {
        Self { store: Some(store), clock, reopen: None, kept: Vec::new() }
    }

    /// For durable stores: reopens the same data with the same clock, after the last handle was
    /// dropped.
    #[must_use]
    pub fn reopened_by(self, reopen: impl Fn() -> Arc<dyn Store> + 'static) -> Self {
        Self { reopen: Some(Box::new(reopen)), ..self }
    }

    /// Keeps a guard as long as the fixture, for example a directory or a server.
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

    /// Closes the store, runs a closure, and reopens the store.
    pub fn reopen_after(&mut self, meanwhile: impl FnOnce(&VirtualClock)) {
        let reopen = self.reopen.as_ref().expect("this store can be opened again");
        let store = self.store.take().expect("the store is open");
        assert_eq!(Arc::strong_count(&store), 1, "another handle keeps the store open");
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
