//! Stores of older programs open and show all their contents (P18).
//!
//! Each released format has a directory under `fixtures/`: a store with every feature, and its dump
//! as text. `src/fixture.rs` checks that the bytes of a format do not change.
//!
//! `make regenerate-fixtures` writes a fixture. Once a release has written a format, its fixture
//! never changes.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_core::claim::ClaimOptions;
use longshore_core::id::{JobType, Seq};
use longshore_core::job::Job;
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::{State, StateKind};
use longshore_core::submit::{NewJob, Payload};
use longshore_core::time::Duration;
use longshore_engine::{ClaimRequest, Settlement, Submission, SubmitRequest};
use longshore_store::{JobRef, Store as _, StoreReader as _, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};
use longshore_testkit::block_on::block_on;

use common::dump::describe;
use common::{assert_whole, jobs_above, sample_store};

/// All formats that this program opens. The last one is the format that it writes.
const FORMATS: [u8; 1] = [1];
const DATABASE: &str = "longshore.db";
const CONTENTS: &str = "contents.txt";

fn fixture(format: u8) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/format-{format}"))
}

/// Shortly after the last step of [`sample_store::fill`], before the next lease expires.
fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(sample_store::BEGIN + Duration::from_secs(38)))
}

fn open(directory: &Path, clock: Arc<VirtualClock>) -> EmbeddedStore {
    let place = StoreLocation::Directory(directory.to_owned());
    let options = EmbeddedOptions { reserve_bytes: 0, ..EmbeddedOptions::new(place, clock, ClockMode::Virtual) };
    EmbeddedStore::open(options).expect("a store of an older program opens")
}

/// Copies a fixture. The original is never opened.
fn copy(format: u8) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a directory");
    fs::copy(fixture(format).join(DATABASE), copy.path().join(DATABASE)).expect("a fixture");
    copy
}

#[test]
fn every_format_opens_with_all_contents() {
    for format in FORMATS {
        let home = copy(format);
        let expected = fs::read_to_string(fixture(format).join(CONTENTS)).expect("what it holds");
        let store = open(home.path(), clock());
        let seen = describe(&store).expect("everything can be read");
        if seen != expected {
            let mut pairs = expected.lines().zip(seen.lines());
            let (before, now) = pairs.find(|(before, now)| before != now).unwrap_or(("the end", "the end"));
            panic!("format {format} is read differently:\n  was {before}\n  is  {now}");
        }
        for state in StateKind::ALL {
            assert!(seen.contains(&format!("state: {state}")), "no job is {state}");
        }
        drop(store);
        assert_whole(home.path());
    }
}

fn job_of_type(jobs: &[Arc<Job>], word: &str) -> Arc<Job> {
    let job_type = JobType::new(word).expect("a type");
    Arc::clone(jobs.iter().find(|job| job.job_type == job_type).expect("a job of this type"))
}

/// Keys, leases, dependencies and deadlines still work.
#[test]
fn every_format_can_be_used() {
    for format in FORMATS {
        let (home, clock) = (copy(format), clock());
        let store = open(home.path(), Arc::clone(&clock));
        let jobs = jobs_above(&store, Seq(0)).expect("jobs are listed");
        let submit = |queue: &str, word: &str, change: &dyn Fn(&mut NewJob)| {
            let mut job = NewJob::new(JobType::new(word).expect("a type"), Payload::Json("{}".into()));
            change(&mut job);
            let submission = Submission { queue: sample_store::queue(queue), job };
            block_on(store.submit(SubmitRequest::new(vec![submission]))).expect("the store takes it")
        };
        let again = submit("plain", "labelled", &|job| job.idempotency_key = Some("once".into())).expect("allowed");
        let labelled = job_of_type(&jobs, "labelled");
        assert!(again.first().is_some_and(|one| one.duplicate && one.id == labelled.id));
        let again = submit("plain", "deleted", &|job| job.idempotency_key = Some("outlives".into())).expect("allowed");
        assert!(again.first().is_some_and(|one| one.duplicate && one.state.is_none()), "a key outlives its job");
        let taken = submit("tuned", "another", &|job| job.external_id = Some("order-0815".into()));
        assert!(matches!(taken, Err(refusal) if !matches!(refusal.first, Refusal::Invalid(_))), "it is taken");

        let running = job_of_type(&jobs, "running");
        let State::Running(lease) = &running.state else { panic!("{:?}", running.state) };
        let outcome = Outcome::Complete { result: None, progress: None };
        let settlement = Settlement { id: running.id, token: Some(lease.token), outcome };
        let verdicts = block_on(store.settle(vec![settlement])).expect("the store settles");
        assert_eq!(verdicts, [Ok(StateKind::Completed)]);
        let dependent = job_of_type(&jobs, "dependent");
        let now = block_on(store.get(vec![JobRef::Id(dependent.id)])).expect("it is read");
        let now = now.first().and_then(Option::as_ref).expect("it is there");
        assert_eq!((dependent.kind(), now.kind()), (StateKind::Pending, StateKind::Scheduled));

        clock.advance(Duration::from_days(30));
        let budget = std::num::NonZeroUsize::new(10_000).expect("not zero");
        let _: longshore_engine::Ticked = block_on(store.tick(budget)).expect("the store ticks");
        let terms = ClaimOptions::default();
        let request = ClaimRequest { queues: vec![sample_store::queue("plain")], limit: 100, types: Vec::new(), terms };
        let claimed = block_on(store.claim(request)).expect("the store gives").expect("the rules allow it");
        assert!(claimed.iter().any(|job| job.claimed.id == labelled.id));
        drop(store);
        assert_whole(home.path());
    }
}

/// Writes the fixture of the current format: `make regenerate-fixtures`.
#[test]
#[ignore = "writes into the source tree; see above"]
fn write_the_fixture() {
    let target = fixture(*FORMATS.last().expect("a format"));
    let home = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(VirtualClock::new(sample_store::BEGIN));
    let store = open(home.path(), Arc::clone(&clock));
    sample_store::fill(&store, &clock);
    let contents = describe(&store).expect("everything can be read");
    drop(store);
    assert_whole(home.path());
    fs::create_dir_all(&target).expect("a directory");
    fs::copy(home.path().join(DATABASE), target.join(DATABASE)).expect("a file");
    fs::write(target.join(CONTENTS), contents).expect("a file");
}
