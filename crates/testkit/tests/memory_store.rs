//! The conformance suite on the simplest store, and on store layers around it, which must not
//! change behaviour.

use std::sync::Arc;

use longshore_engine::EngineOptions;
use longshore_store::{Clock, InstrumentedStore, Observer, Store, StoreCall};
use longshore_testkit::conformance::{self, StoreFixture};
use longshore_testkit::faulty_store::{Faults, FaultyStore};
use longshore_testkit::memory_store::{Disk, MemoryStore};

/// Makes a fixture whose store reopens the same data.
fn fixture_with(wrap: fn(Arc<dyn Store>) -> Arc<dyn Store>) -> StoreFixture {
    let (clock, disk) = (conformance::clock(), Disk::new(EngineOptions::default()));
    let same_clock = Arc::clone(&clock);
    let open = move || {
        let clock: Arc<dyn Clock> = Arc::<longshore_store::VirtualClock>::clone(&same_clock);
        wrap(Arc::new(MemoryStore::open(disk.clone(), clock)))
    };
    StoreFixture::new(open(), clock).reopened_by(open)
}

fn plain() -> StoreFixture {
    fixture_with(|store| store)
}

#[derive(Debug)]
struct NullObserver;

impl Observer for NullObserver {
    fn observe(&self, _: &StoreCall<'_>) {}
}

/// Wraps the store in both layers.
fn wrapped() -> StoreFixture {
    fixture_with(|store| {
        let faulty = FaultyStore::new(store, Faults::none().including_reads());
        Arc::new(InstrumentedStore::new(Arc::new(faulty), Arc::new(NullObserver), longshore_store::clock::monotonic))
    })
}

mod memory {
    longshore_testkit::conformance!(super::plain, histories: 60);
}

mod wrappers {
    longshore_testkit::conformance!(super::wrapped, histories: 5);
}
