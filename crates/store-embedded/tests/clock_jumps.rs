//! Jumps of the wall clock while the store is closed: the store's time never runs backwards, and
//! live leases keep their remaining time.

#![expect(clippy::expect_used, clippy::panic, reason = "a test says no by panicking")]

mod common;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use longshore_core::claim::ClaimOptions;
use longshore_core::heartbeat::{HeartbeatData, LeaseRenewal};
use longshore_core::id::JobType;
use longshore_core::job::Job;
use longshore_core::lease::Lease;
use longshore_core::patch::SettingsPatch;
use longshore_core::policy::Reclaim;
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::{State, StateKind};
use longshore_core::submit::{NewJob, Payload, Start};
use longshore_core::time::{Duration, Timestamp};
use longshore_engine::{
    AdminCommand, AdminResponse, ClaimRequest, Heartbeat, Settlement, Submission, SubmitRequest, Ticked,
};
use longshore_store::{ClaimedJob, JobRef, Store as _, StoreReader as _, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation, backup_directory, restore};
use longshore_testkit::block_on::block_on;

use common::{assert_whole, copy_of, workload};

const HOUR: i64 = 3_600_000;
/// Time of the first open.
const START: i64 = 500_000 * HOUR;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Opens a store in real time with the wall clock at a given time.
fn open_at(directory: &Path, wall: i64) -> (EmbeddedStore, Arc<VirtualClock>) {
    open_in(ClockMode::Real, directory, wall)
}

fn open_in(time: ClockMode, directory: &Path, wall: i64) -> (EmbeddedStore, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new(at(wall)));
    let options = EmbeddedOptions::new(StoreLocation::Directory(directory.to_owned()), clock.clone(), time);
    let store = EmbeddedStore::open(EmbeddedOptions { reserve_bytes: 0, ..options }).expect("the store opens");
    (store, clock)
}

fn submit(store: &EmbeddedStore, change: impl FnOnce(&mut NewJob)) {
    let mut job = NewJob::new(JobType::new("load").expect("a type"), Payload::Json("{}".into()));
    change(&mut job);
    let request = SubmitRequest::new(vec![Submission { queue: workload::queue("even"), job }]);
    drop(block_on(store.submit(request)).expect("the store takes it").expect("the rules allow it"));
}

fn claim(store: &EmbeddedStore, terms: ClaimOptions) -> Vec<ClaimedJob> {
    let request = ClaimRequest { queues: vec![workload::queue("even")], limit: 10, types: Vec::new(), terms };
    block_on(store.claim(request)).expect("the store gives").expect("the rules allow it")
}

fn terms(lease: u64, execution_timeout: Option<u64>) -> ClaimOptions {
    let execution_timeout = execution_timeout.map(Duration::from_secs);
    ClaimOptions { lease: Some(Duration::from_secs(lease)), execution_timeout, ..ClaimOptions::default() }
}

/// Submits and claims a job.
fn run_one(store: &EmbeddedStore, terms: ClaimOptions) -> ClaimedJob {
    submit(store, |_| {});
    claim(store, terms).pop().expect("a job")
}

fn job(store: &EmbeddedStore, claimed: &ClaimedJob) -> Arc<Job> {
    let found = block_on(store.get(vec![JobRef::Id(claimed.claimed.id)])).expect("it is read");
    found.into_iter().next().flatten().expect("it is there")
}

fn lease(store: &EmbeddedStore, claimed: &ClaimedJob) -> Lease {
    let State::Running(lease) = &job(store, claimed).state else { panic!("not running") };
    lease.clone()
}

fn expiry(store: &EmbeddedStore, claimed: &ClaimedJob) -> Option<Timestamp> {
    lease(store, claimed).expires_at
}

fn state_after_tick(store: &EmbeddedStore, claimed: &ClaimedJob) -> StateKind {
    let _: Ticked = block_on(store.tick(NonZeroUsize::MAX)).expect("the store ticks");
    job(store, claimed).kind()
}

fn complete(store: &EmbeddedStore, job: &ClaimedJob) -> Result<StateKind, Refusal> {
    let outcome = Outcome::Complete { result: None, progress: None };
    let settlement = Settlement { id: job.claimed.id, token: Some(job.claimed.token), outcome };
    let verdicts = block_on(store.settle(vec![settlement])).expect("the store settles");
    verdicts.into_iter().next().expect("a verdict")
}

fn heartbeat(store: &EmbeddedStore, job: &ClaimedJob) -> Result<LeaseRenewal, Refusal> {
    let heartbeat = Heartbeat { id: job.claimed.id, token: Some(job.claimed.token), notes: HeartbeatData::default() };
    let verdicts = block_on(store.heartbeat(vec![heartbeat])).expect("the store extends");
    verdicts.into_iter().next().expect("a verdict")
}

#[test]
fn jump_forward_extends_live_leases() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, clock) = open_at(home.path(), START);
    let claimed = run_one(&store, terms(60, None));
    clock.advance(Duration::from_secs(10));
    drop(store);
    let (store, clock) = open_at(home.path(), START + HOUR);
    assert_eq!(expiry(&store, &claimed), Some(at(START + HOUR + 50_000)));
    clock.advance(Duration::from_millis(49_999));
    assert_eq!(state_after_tick(&store, &claimed), StateKind::Running);
    assert_eq!(
        heartbeat(&store, &claimed).map(|extended| extended.expires_at),
        Ok(Some(store.now() + Duration::from_secs(60)))
    );
    assert_eq!(complete(&store, &claimed), Ok(StateKind::Completed));
    drop(store);
    assert_whole(home.path());
}

#[test]
fn extended_lease_expires_after_its_remaining_time() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, clock) = open_at(home.path(), START);
    let claimed = run_one(&store, terms(60, None));
    clock.advance(Duration::from_secs(10));
    drop(store);
    let (store, clock) = open_at(home.path(), START + HOUR);
    clock.advance(Duration::from_secs(50));
    assert_eq!(state_after_tick(&store, &claimed), StateKind::Scheduled);
    assert!(complete(&store, &claimed).is_err());
}

#[test]
fn time_does_not_run_backwards_over_a_restart() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, clock) = open_at(home.path(), START);
    let claimed = run_one(&store, terms(2, None));
    submit(&store, |job| job.start = Start::In(Duration::from_secs(3)));
    clock.advance(Duration::from_secs(1));
    drop(store);
    let (store, clock) = open_at(home.path(), START - HOUR);
    assert_eq!(store.now(), at(START + 1_000));
    assert_eq!(expiry(&store, &claimed), Some(at(START + 2_000)));
    clock.advance(Duration::from_secs(1));
    assert_eq!(state_after_tick(&store, &claimed), StateKind::Scheduled, "a lease of 2 s does not last an hour");
    clock.advance(Duration::from_secs(1));
    let _: Ticked = block_on(store.tick(NonZeroUsize::MAX)).expect("the store ticks");
    assert_eq!(claim(&store, ClaimOptions::default()).len(), 2, "a delay of 3 s does not last an hour");
}

/// After a kill the watermark file has no final time; the last commit has one.
#[test]
fn leases_keep_their_remaining_time_after_a_kill() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, clock) = open_at(home.path(), START);
    let claimed = run_one(&store, terms(60, None));
    clock.advance(Duration::from_secs(10));
    submit(&store, |_| {});
    clock.advance(Duration::from_secs(10));
    let killed = copy_of(home.path());
    for wall in [START + HOUR, START + 20_000] {
        let killed = copy_of(killed.path());
        let (store, _) = open_at(killed.path(), wall);
        let left = expiry(&store, &claimed).map(|at| at.since(store.now()).as_millis());
        assert!(left.is_some_and(|left| (40_000..=60_000).contains(&left)), "{left:?} of 40 s or a little more");
        assert_eq!(complete(&store, &claimed), Ok(StateKind::Completed));
    }
    let (store, _) = open_at(killed.path(), START - HOUR);
    assert!(store.now() >= at(START + 10_000), "{:?}", store.now());
}

/// The extended leases and the new clock floor are one commit. A killed start does not extend
/// twice.
/// The first start after a power cut is interrupted when the WAL is empty again. The next start
/// must still refuse leases that a lost commit may have replaced.
#[test]
fn a_second_power_cut_revives_no_lease() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, _) = open_at(home.path(), START);
    let claimed = run_one(&store, terms(1, None));
    // Whether a commit at this expiry is lost is unknown.
    let unclean = copy_of(home.path());
    let (first, _) = open_at(unclean.path(), START + 5_000);
    let interrupted = copy_of(unclean.path());
    std::fs::write(interrupted.path().join("longshore.db-wal"), []).expect("the WAL is emptied");
    let (second, _) = open_at(interrupted.path(), START + 10_000);
    for store in [first, second] {
        let verdict = complete(&store, &claimed);
        assert!(matches!(verdict, Err(Refusal::StaleLease(_))), "{verdict:?}");
    }
}

#[test]
fn leases_are_extended_once() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, _) = open_at(home.path(), START);
    let claimed = run_one(&store, terms(60, None));
    drop(store);
    let (store, _) = open_at(home.path(), START + HOUR);
    let expected = Some(at(START + HOUR + 60_000));
    assert_eq!(expiry(&store, &claimed), expected);
    let killed = copy_of(home.path());
    let (again, _) = open_at(killed.path(), START + HOUR);
    // After a kill the clock skips the second in which commits may be lost.
    assert_eq!(again.now(), at(START + HOUR + 1_000));
    assert_eq!(expiry(&again, &claimed), Some(again.now() + Duration::from_secs(60)));
    drop(again);
    let (again, _) = open_at(killed.path(), START + 2 * HOUR);
    assert_eq!(expiry(&again, &claimed), Some(at(START + 2 * HOUR + 60_000)));
    drop(again);
    assert_whole(killed.path());
}

#[test]
fn execution_timeout_is_extended_with_the_lease() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, clock) = open_at(home.path(), START);
    let claimed = run_one(&store, terms(60, Some(90)));
    clock.advance(Duration::from_secs(10));
    drop(store);
    let (store, clock) = open_at(home.path(), START + HOUR);
    let deadline = at(START + HOUR + 80_000);
    assert_eq!(expiry(&store, &claimed), Some(at(START + HOUR + 50_000)));
    assert_eq!(lease(&store, &claimed).deadline_at, Some(deadline));
    clock.advance(Duration::from_secs(49));
    assert_eq!(heartbeat(&store, &claimed).map(|extended| extended.expires_at), Ok(Some(deadline)));
    clock.advance(Duration::from_secs(31));
    let _: StateKind = state_after_tick(&store, &claimed);
    let error = job(&store, &claimed).error.clone().expect("it timed out");
    assert!(format!("{error:?}").contains("execution_timeout"), "{error:?}");
}

#[test]
fn an_expired_lease_stays_expired() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, clock) = open_at(home.path(), START);
    let eager = run_one(&store, terms(5, None));
    clock.advance(Duration::from_secs(10));
    drop(store);
    let (store, _) = open_at(home.path(), START + HOUR);
    assert!(complete(&store, &eager).is_err());
    assert_eq!(state_after_tick(&store, &eager), StateKind::Scheduled);
}

#[test]
fn a_lease_that_is_reclaimed_lazily_stays_expired() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, clock) = open_at(home.path(), START);
    let overrides = Some(Box::new(SettingsPatch { reclaim: Some(Reclaim::Lazy), ..SettingsPatch::default() }));
    let put = AdminCommand::PutQueue { queue: workload::queue("even"), profile: None, overrides };
    let _: AdminResponse = block_on(store.admin(put)).expect("the store takes it").expect("the rules allow it");
    let lazy = run_one(&store, terms(5, None));
    clock.advance(Duration::from_secs(10));
    assert_eq!(state_after_tick(&store, &lazy), StateKind::Running);
    drop(store);
    let (store, _) = open_at(home.path(), START + HOUR);
    assert_eq!(expiry(&store, &lazy), Some(at(START + 5_000)));
    let _: Ticked = block_on(store.tick(NonZeroUsize::MAX)).expect("the store ticks");
    let taken = claim(&store, terms(60, None));
    assert!(taken.iter().any(|job| job.claimed.id == lazy.claimed.id), "the next claim takes it over");
}

/// Virtual time belongs to the user: time between two starts has passed.
#[test]
fn virtual_time_extends_no_lease() {
    let home = tempfile::tempdir().expect("a directory");
    let (store, _) = open_in(ClockMode::Virtual, home.path(), START);
    let claimed = run_one(&store, terms(60, None));
    drop(store);
    let (store, _) = open_in(ClockMode::Virtual, home.path(), START - HOUR);
    assert_eq!(store.now(), at(START - HOUR));
    drop(store);
    let (store, _) = open_in(ClockMode::Virtual, home.path(), START + HOUR);
    assert_eq!(expiry(&store, &claimed), Some(at(START + 60_000)));
    assert_eq!(state_after_tick(&store, &claimed), StateKind::Scheduled);
}

/// Leases in a backup are void: their jobs expire as planned, and time continues from the latest
/// known time.
#[test]
fn restore_extends_no_lease() {
    let root = tempfile::tempdir().expect("a directory");
    let (home, copy) = (root.path().join("home"), root.path().join("copy"));
    let (store, _) = open_at(&home, START);
    let claimed = run_one(&store, terms(60, None));
    drop(store);
    backup_directory(&home, &copy).expect("a backup");
    let later = root.path().join("later");
    restore(&copy, &later, at(START + HOUR)).expect("a store");
    let (store, _) = open_at(&later, START + HOUR);
    assert_eq!(expiry(&store, &claimed), Some(at(START + 60_000)));
    assert_eq!(state_after_tick(&store, &claimed), StateKind::Scheduled);
    drop(store);
    let earlier = root.path().join("earlier");
    restore(&copy, &earlier, at(START - HOUR)).expect("a store");
    let (store, _) = open_at(&earlier, START - HOUR);
    assert!(store.now() >= at(START), "time does not run backwards");
}
