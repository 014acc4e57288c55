//! Conformance suite on the embedded store, on disk and in memory.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

use std::path::Path;
use std::sync::Arc;

use longshore_core::id::{JobType, QueueName};
use longshore_core::submit::{NewJob, Payload};
use longshore_engine::{Submission, SubmitRequest};
use longshore_store::{Clock, JobRef, Store, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};
use longshore_testkit::block_on::block_on;
use longshore_testkit::conformance::{self, StoreFixture};
use longshore_testkit::parking::{self, Order};

fn open(place: StoreLocation, clock: &Arc<VirtualClock>) -> Arc<dyn Store> {
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let options = EmbeddedOptions { reserve_bytes: 0, ..EmbeddedOptions::new(place, clock, ClockMode::Virtual) };
    Arc::new(EmbeddedStore::open(options).expect("the store opens"))
}

/// Creates a directory in memory if possible. The suite does not depend on the disk, and the crash
/// tests use a real one.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

fn on_disk() -> StoreFixture {
    let (clock, directory) = (conformance::clock(), directory());
    let (path, same_clock) = (directory.path().to_owned(), Arc::clone(&clock));
    let open_it = move |path: &Path| open(StoreLocation::Directory(path.to_owned()), &same_clock);
    StoreFixture::new(open_it(&path), clock).reopened_by(move || open_it(&path)).keeping(directory)
}

fn in_memory() -> StoreFixture {
    let clock = conformance::clock();
    StoreFixture::new(open(StoreLocation::Memory, &clock), clock)
}

mod disk {
    longshore_testkit::conformance!(super::on_disk, histories: 20);
}

mod memory {
    longshore_testkit::conformance!(super::in_memory, histories: 20);
}

/// Proves I-6.
#[test]
fn without_a_path_nothing_outlives_the_store() {
    let clock = conformance::clock();
    let submit = |store: &Arc<dyn Store>| {
        let queue = QueueName::new("q").expect("a name");
        let job = NewJob::new(JobType::new("t").expect("a name"), Payload::Json("1".into()));
        block_on(store.submit(SubmitRequest::new(vec![Submission { queue, job }]))).expect("stored").expect("taken")
    };
    let first = open(StoreLocation::Memory, &clock);
    let born = submit(&first);
    // Stores beside it and after it are independent.
    let beside = open(StoreLocation::Memory, &clock);
    let id = born.first().expect("one job").id;
    assert!(block_on(beside.get(vec![JobRef::Id(id)])).expect("an answer").iter().all(Option::is_none));
    drop((first, beside));
    let after = open(StoreLocation::Memory, &clock);
    assert!(block_on(after.get(vec![JobRef::Id(id)])).expect("an answer").iter().all(Option::is_none));
    assert_eq!(submit(&after).first().expect("one job").seq, born.first().expect("one job").seq);
}

/// 100,000 rounds of claims that park, time out, disconnect and are granted, in the order of the
/// model.
#[test]
fn parked_claims_are_granted_in_order_without_lost_wakeups() {
    let (clock, seed) = (conformance::clock(), 20_261_118);
    let store = open(StoreLocation::Memory, &clock);
    let grants = parking::play(&*store, &clock, seed, 100_000, Order::Exact);
    assert!(grants > 10_000, "{grants} grants");
}
