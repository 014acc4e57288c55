//! Random workflows on an engine that works in the smallest slices and is reopened in between.

use std::sync::Arc;

use longshore_engine::EngineOptions;
use longshore_store::{Clock, VirtualClock};
use longshore_testkit::conformance::{self, Case, StoreFixture};
use longshore_testkit::memory_store::{Disk, MemoryStore};

fn fixture(cascade_jobs_max: usize) -> StoreFixture {
    let (clock, disk) =
        (conformance::clock(), Disk::new(EngineOptions { cascade_jobs_max, ..EngineOptions::default() }));
    let same_clock = Arc::clone(&clock);
    let open = move || -> Arc<MemoryStore> {
        let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&same_clock);
        Arc::new(MemoryStore::open(disk.clone(), clock))
    };
    StoreFixture::new(open(), clock).reopened_by(move || open())
}

fn random_dags() -> impl Iterator<Item = Case> {
    conformance::cases().into_iter().filter(|case| case.group == "dags" || case.name == "random_dags_with_reopen")
}

/// Proves T-32, T-36, G-6.1, G-6.2.
#[test]
fn random_dags_end_in_the_smallest_slices() {
    assert_eq!(random_dags().count(), 3);
    for cascade_jobs_max in [1, 3] {
        for case in random_dags() {
            assert!(case.run(fixture(cascade_jobs_max)), "{} was skipped", case.name);
        }
    }
}
