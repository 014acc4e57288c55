//! The conformance suite on the plainest store: a check of the suite as much as of the store. And on the wrappers, which must not show.

use std::sync::Arc;

use longshore_engine::EngineOptions;
use longshore_store::{Clock, Faults, FaultyStore, InstrumentedStore, Observer, Store, StoreCall};
use longshore_testkit::conformance::{self, StoreFixture};
use longshore_testkit::memory_store::{Disk, MemoryStore};

/// A world around a store that is opened on what an earlier one left.
fn opened_by(wrap: fn(Arc<dyn Store>) -> Arc<dyn Store>) -> StoreFixture {
    let (clock, disk) = (conformance::clock(), Disk::new(EngineOptions::default()));
    let same_clock = Arc::clone(&clock);
    let open = move || {
        let clock: Arc<dyn Clock> = Arc::<longshore_store::VirtualClock>::clone(&same_clock);
        wrap(Arc::new(MemoryStore::open(disk.clone(), clock)))
    };
    StoreFixture::new(open(), clock).reopened_by(open)
}

fn plain() -> StoreFixture {
    opened_by(|store| store)
}

#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn observe(&self, _: &StoreCall<'_>) {}
}

/// Both wrappers, one around the other.
fn wrapped() -> StoreFixture {
    opened_by(|store| {
        let unreliable = FaultyStore::new(store, Faults::none().including_reads());
        Arc::new(InstrumentedStore::new(Arc::new(unreliable), Arc::new(Nobody), longshore_store::clock::monotonic))
    })
}

mod memory {
    longshore_testkit::conformance!(super::plain, histories: 60);
}

mod wrappers {
    longshore_testkit::conformance!(super::wrapped, histories: 5);
}
