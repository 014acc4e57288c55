//! Incremental vacuum: the file shrinks after a large deletion (F49), and deletions free space on a
//! full disk (F10).

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::id::{JobType, Seq};
use longshore_core::settle::Outcome;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::time::Timestamp;
use longshore_engine::{ClaimRequest, Settlement, Submission, SubmitRequest};
use longshore_store::clock::monotonic;
use longshore_store::{ClaimedJob, Clock, Store as _, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};
use longshore_testkit::block_on::block_on;

use common::{assert_whole, jobs_above, payloads_of, workload};

const PAYLOAD_BYTES: usize = 16 << 10;

fn submit(store: &EmbeddedStore, queue: &str, count: usize) {
    let one = || {
        let payload = Payload::Binary(Bytes::from(vec![7; PAYLOAD_BYTES]));
        let job = NewJob::new(JobType::new("load").expect("a type"), payload);
        Submission { queue: workload::queue(queue), job }
    };
    let request = SubmitRequest::new((0..count).map(|_| one()).collect());
    drop(block_on(store.submit(request)).expect("the store takes it").expect("the rules allow it"));
}

/// Opens a store in real time, with a clock that the test advances.
fn open(directory: &Path, clock: &Arc<VirtualClock>) -> EmbeddedStore {
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let options = EmbeddedOptions::new(StoreLocation::Directory(directory.to_owned()), clock, ClockMode::Real);
    EmbeddedStore::open(EmbeddedOptions { reserve_bytes: 1 << 20, ..options }).expect("the store opens")
}

fn end_all(store: &EmbeddedStore, queue: &str) {
    loop {
        let queues = vec![workload::queue(queue)];
        let request = ClaimRequest { queues, limit: 100, types: Vec::new(), terms: ClaimOptions::default() };
        let claimed = block_on(store.claim(request)).expect("the store gives").expect("the rules allow it");
        if claimed.is_empty() {
            return;
        }
        let outcome = Outcome::Complete { result: None, progress: None };
        let end = |job: &ClaimedJob| Settlement {
            id: job.claimed.id,
            token: Some(job.claimed.token),
            outcome: outcome.clone(),
        };
        drop(block_on(store.settle(claimed.iter().map(end).collect())).expect("the store settles"));
    }
}

fn file_bytes(directory: &Path) -> u64 {
    directory.join("longshore.db").metadata().expect("it is there").len()
}

/// Ticks like a server: whenever a deadline is due.
fn tick_until(store: &EmbeddedStore, clock: &VirtualClock, what: &str, so: impl Fn() -> bool) -> usize {
    let (begin, wakeups, mut ticks) = (monotonic(), store.wakeups(), 0);
    let mut next = Some(clock.now());
    while !so() {
        assert!(monotonic() - begin < Duration::from_secs(30), "{what}, after {ticks} ticks");
        // The checkpoint thread truncates the file.
        std::thread::yield_now();
        if let Some(due) = next.into_iter().chain(wakeups.deadline()).min() {
            clock.advance_to(due);
            let budget = NonZeroUsize::new(500).expect("not zero");
            next = block_on(store.tick(budget)).expect("the store ticks").next;
            ticks += 1;
        }
    }
    ticks
}

#[test]
fn file_shrinks_after_a_large_deletion() {
    let home = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(1_000_000)));
    let store = open(home.path(), &clock);
    // Remaining jobs are between deleted ones.
    for _ in 0..20 {
        submit(&store, "odd", 200);
        submit(&store, "even", 2);
    }
    drop(store);
    let full = file_bytes(home.path());
    assert!(full > 60 << 20, "{full} bytes");
    let store = open(home.path(), &clock);
    end_all(&store, "odd");
    let gone = || jobs_above(&store, Seq(0)).expect("jobs are listed").len() == 40;
    tick_until(&store, &clock, "ended jobs are pruned", gone);
    // Free pages that stay: a quarter of the file, and 16 MiB.
    let ticks = tick_until(&store, &clock, "the file gets shorter", || file_bytes(home.path()) < 20 << 20);
    println!("{full} bytes, and after {ticks} more ticks {}", file_bytes(home.path()));
    let jobs = jobs_above(&store, Seq(0)).expect("jobs are listed");
    let payloads = payloads_of(&store, &jobs).expect("payloads are read");
    assert_eq!(payloads.iter().flatten().filter(|payload| payload.bytes().len() == PAYLOAD_BYTES).count(), 40);
    drop(store);
    assert_whole(home.path());
}
