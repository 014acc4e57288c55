//! Files follow what is in them: after a great clearing the disk gets its space back (F49), and on a full one deleting makes room (F10).

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
use longshore_store_embedded::{ClockMode, EmbeddedStore, Options, StoreLocation};
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

/// A store in real time, on a clock that we turn ourselves.
fn open(directory: &Path, clock: &Arc<VirtualClock>) -> EmbeddedStore {
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let options = Options::new(StoreLocation::Directory(directory.to_owned()), clock, ClockMode::Real);
    EmbeddedStore::open(Options { reserve_bytes: 1 << 20, ..options }).expect("the store opens")
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

/// Does what a server does: ticks when something is due, and waits for nothing else.
fn tick_until(store: &EmbeddedStore, clock: &VirtualClock, what: &str, so: impl Fn() -> bool) -> usize {
    let (begin, wakeups, mut ticks) = (monotonic(), store.wakeups(), 0);
    let mut next = Some(clock.now());
    while !so() {
        assert!(monotonic() - begin < Duration::from_secs(30), "{what}, after {ticks} ticks");
        // A file gets shorter beside the writer.
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
fn a_store_that_was_emptied_gives_its_space_back() {
    let home = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(1_000_000)));
    let store = open(home.path(), &clock);
    // Those that stay lie among those that go.
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
    // What is kept for later: a quarter, and 16 MiB.
    let ticks = tick_until(&store, &clock, "the file gets shorter", || file_bytes(home.path()) < 20 << 20);
    println!("{full} bytes, and after {ticks} more ticks {}", file_bytes(home.path()));
    let jobs = jobs_above(&store, Seq(0)).expect("jobs are listed");
    let payloads = payloads_of(&store, &jobs).expect("payloads are read");
    assert_eq!(payloads.iter().flatten().filter(|payload| payload.bytes().len() == PAYLOAD_BYTES).count(), 40);
    drop(store);
    assert_whole(home.path());
}
