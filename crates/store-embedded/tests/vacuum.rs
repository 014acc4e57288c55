//! After a mass deletion the file shrinks, beside the work: F49, and what people expect of a queue that was once full.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test says no by panicking")]

mod common;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration as Time;

use bytes::Bytes;
use longshore_core::engine::{AdminCommand, Submission, SubmitRequest, Submitted};
use longshore_core::id::{JobType, Seq};
use longshore_core::submit::{NewJob, Payload};
use longshore_core::time::Duration;
use longshore_store::clock::monotonic;
use longshore_store::{Clock, Inspect as _, JobRef, Store as _, VirtualClock};
use longshore_store_embedded::{EmbeddedStore, Options, Place, TimeKind};
use longshore_testkit::block_on::block_on;

use common::{assert_whole, load, rich};

const JOBS: usize = 4_000;
const PAYLOAD_BYTES: usize = 8_000;

fn open(home: &Path, clock: &Arc<VirtualClock>) -> EmbeddedStore {
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let place = Place::Directory(home.to_owned());
    EmbeddedStore::open(Options { reserve_bytes: 0, ..Options::new(place, clock, TimeKind::Virtual) })
        .expect("it opens")
}

fn submit(store: &EmbeddedStore, jobs: usize, bytes: usize) -> Vec<Submitted> {
    let payload = Payload::Binary(Bytes::from(vec![7; bytes]));
    let job = NewJob::new(JobType::new("big").expect("a type"), payload);
    let batch = (0..jobs).map(|_| Submission { queue: load::queue("full"), job: job.clone() }).collect();
    block_on(store.submit(SubmitRequest::new(batch))).expect("the store takes it").expect("the rules allow it")
}

fn size(home: &Path) -> u64 {
    std::fs::metadata(home.join("longshore.db")).expect("a database").len()
}

/// A store that has held much, and holds a tenth of it.
fn emptied(home: &Path, clock: &Arc<VirtualClock>) -> (EmbeddedStore, Vec<Seq>) {
    let store = open(home, clock);
    let mut kept = Vec::new();
    for _ in 0..JOBS / 100 {
        let jobs = submit(&store, 100, PAYLOAD_BYTES);
        // Here and there, so that the rest has to be moved.
        kept.extend(jobs.iter().step_by(10).map(|job| job.seq));
        for job in jobs.iter().filter(|job| !kept.contains(&job.seq)) {
            let bury = AdminCommand::DeadLetter { id: job.id, reason: None };
            drop(block_on(store.admin(bury)).expect("the store does it"));
        }
    }
    // All of it is in the database, and none in the log.
    drop(store);
    let full = size(home);
    assert!(full > (JOBS * PAYLOAD_BYTES) as u64, "{full} bytes");
    let store = open(home, clock);
    for seq in 1..=JOBS as u64 {
        let job = block_on(store.get(vec![JobRef::Seq(Seq(seq))])).expect("it is read")[0].clone();
        if let Some(job) = job.filter(|job| job.state.terminal()) {
            drop(block_on(store.admin(AdminCommand::Delete { id: job.id })).expect("the store does it"));
        }
    }
    (store, kept)
}

/// Little things, one after the other, with nothing to do in between; says how long each took.
fn little_work(store: &EmbeddedStore, times: usize, mut enough: impl FnMut() -> bool) -> Vec<Time> {
    let mut took = Vec::new();
    while took.len() < times && !enough() {
        let started = monotonic();
        submit(store, 1, 10);
        took.push(monotonic().saturating_sub(started));
    }
    took
}

fn of_thousand(took: &mut [Time], place: usize) -> Time {
    took.sort_unstable();
    took[(took.len() - 1) * place / 1_000]
}

#[test]
fn after_a_mass_deletion_the_file_shrinks_beside_the_work() {
    let (home, clock) = (tempfile::tempdir().expect("a directory"), Arc::new(VirtualClock::new(rich::BEGIN)));
    let (store, kept) = emptied(home.path(), &clock);
    let full = size(home.path());
    let mut during = little_work(&store, 20_000, || size(home.path()) < full / 3);
    let shrunk = size(home.path());
    assert!(shrunk < full / 3, "{full} bytes became {shrunk}");
    let mut after = little_work(&store, during.len().max(500), || false);
    let figures = |took: &mut [Time]| format!("p50 {:?}, p99 {:?}", of_thousand(took, 500), of_thousand(took, 990));
    println!("{full} bytes became {shrunk} during {} commits: {}", during.len(), figures(&mut during));
    println!("and {} commits without anything to give back: {}", after.len(), figures(&mut after));
    for seq in kept {
        let payload = block_on(store.payloads(vec![seq])).expect("it is read")[0].clone();
        assert!(payload.is_some_and(|payload| payload.bytes().iter().eq(std::iter::repeat_n(&7, PAYLOAD_BYTES))));
    }
    clock.advance(Duration::from_days(1));
    let _: longshore_core::engine::Ticked =
        block_on(store.tick(NonZeroUsize::new(100).expect("not zero"))).expect("the store ticks");
    drop(store);
    assert_whole(home.path());
}

/// What is closed in the middle of it goes on where it was.
#[test]
fn a_store_that_is_closed_while_it_shrinks_is_whole() {
    let (home, clock) = (tempfile::tempdir().expect("a directory"), Arc::new(VirtualClock::new(rich::BEGIN)));
    let (store, kept) = emptied(home.path(), &clock);
    let full = size(home.path());
    drop(store);
    for _ in 0..200 {
        let store = open(home.path(), &clock);
        little_work(&store, 100, || false);
        drop(store);
        if size(home.path()) < full / 3 {
            break;
        }
    }
    assert!(size(home.path()) < full / 3);
    assert_whole(home.path());
    let store = open(home.path(), &clock);
    assert_eq!(block_on(store.payloads(kept.clone())).expect("it is read").iter().flatten().count(), kept.len());
}
