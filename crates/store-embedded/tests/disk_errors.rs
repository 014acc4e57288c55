//! Disk errors: after a failed write or sync the store acknowledges nothing (F08, F09, P14). On a
//! full disk it rejects submissions and finishes other work (F10, P15).

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::{JobType, Seq};
use longshore_core::settle::Outcome;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::time::Timestamp;
use longshore_engine::{AdminCommand, ClaimRequest, Heartbeat, Settlement, Submission, SubmitRequest, Ticked};
use longshore_store::clock::monotonic;
use longshore_store::{ClaimedJob, Clock, Store as _, StoreError, StoreHealth, StoreReader as _, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};
use longshore_testkit::block_on::block_on;

use common::child::{self, Load};
use common::ledger::Ledger;
use common::strace::{self, SYNC, Site, run};
use common::{assert_whole, copy_of, jobs_above, open, payloads_of, workload};

/// The workload; see `common/child.rs`.
#[test]
fn child() {
    child::main();
}

/// Injects one fault. Checks the exit of the process, lost changes and refused batches.
fn fail(site: Site, what: &str, cycle: u64) -> Ledger {
    let home = tempfile::tempdir().expect("a directory");
    // Creating the tables makes many calls; those succeed here.
    drop(open(home.path()).expect("the store opens"));
    let mut ledger = Ledger::default();
    let words = strace::injecting(home.path(), site, &format!("error=EIO:{what}"));
    // Without the fault the workload ends by itself.
    let mut command = child::command(&words, home.path(), cycle);
    let status = Load::start(command.env(child::BATCHES, "2000")).finish(&mut ledger);
    let first = ledger.errors.first();
    println!("{site}, {what}: {} acknowledged, then {first:?}", ledger.acknowledged);
    assert!(ledger.poisoned, "{:?}", ledger.errors);
    assert!(!ledger.errors.iter().any(|error| error.contains("SqliteFailure")), "for people: {:?}", ledger.errors);
    assert_eq!(status.code(), Some(workload::POISONED), "the process says how it ended");
    let store = open(home.path()).expect("the store opens after a failure");
    ledger.check_recent(&store);
    ledger.check_all(&store);
    let _: u64 = ledger.ask_again(&store, cycle);
    drop(store);
    assert_whole(home.path());
    ledger
}

#[test]
fn after_a_failed_write_or_sync_nothing_is_acknowledged_and_nothing_is_lost() {
    if !strace::allowed() {
        return;
    }
    let mut cycle = 0;
    for call in [SYNC, "pwrite64"] {
        for what in [20, 33, 47, 60].into_iter().flat_map(|at| [format!("when={at}"), format!("when={at}+")]) {
            let ledger = fail(Site { call, file: "longshore.db-wal" }, &what, cycle);
            // Requests in flight get `Unknown`, later ones `Poisoned`.
            for word in ["unknown", "not-applied"] {
                assert!(ledger.errors.iter().any(|error| error.starts_with(word)), "{word}: {:?}", ledger.errors);
            }
            cycle += 1;
        }
    }
}

/// A failed checkpoint poisons the store, too.
#[test]
fn after_a_failed_checkpoint_nothing_is_acknowledged_and_nothing_is_lost() {
    if !strace::allowed() {
        return;
    }
    for call in [SYNC, "pwrite64"] {
        for what in ["when=1", "when=1+", "when=2"] {
            let ledger = fail(Site { call, file: "longshore.db" }, what, workload::HEAVY);
            assert!(ledger.errors.iter().any(|error| error.starts_with("not-applied")), "{:?}", ledger.errors);
        }
    }
}

/// If the checkpoint at open fails, the store does not open: the page cache may show unsynced
/// pages.
#[test]
fn open_fails_if_recovery_cannot_write() {
    if !strace::allowed() {
        return;
    }
    for (call, file) in [(SYNC, "longshore.db"), ("pwrite64", "longshore.db"), ("ftruncate", "longshore.db-wal")] {
        let home = tempfile::tempdir().expect("a directory");
        let mut ledger = Ledger::default();
        let crashed = Load::start(&mut child::command(&[], home.path(), 0));
        crashed.kill(Duration::from_millis(20), &mut ledger);
        ledger.next_load();
        let words = strace::injecting(home.path(), Site { call, file }, "error=EIO:when=1+");
        let status = Load::start(&mut child::command(&words, home.path(), 1)).finish(&mut ledger);
        assert_eq!(status.code(), Some(workload::NOT_OPENED), "{call} of {file}: {:?}", ledger.errors);
        let store = open(home.path()).expect("the store opens on a healthy disk");
        ledger.check_recent(&store);
        ledger.check_all(&store);
    }
}

/// A used-up quota is a full disk (F10). SQLite reports the same error for both.
#[test]
fn used_up_quota_is_a_full_disk() {
    if !strace::allowed() {
        return;
    }
    // The first writes extend the WAL and write the frames of the first commits.
    for at in [1, 2, 3, 4, 30, 47] {
        let home = tempfile::tempdir().expect("a directory");
        drop(open(home.path()).expect("the store opens"));
        let mut ledger = Ledger::default();
        // The probe file exceeds the quota, too.
        let files = ["longshore.db-wal", "quota-probe"];
        let words = strace::injecting_into(home.path(), &files, "pwrite64", &format!("error=EDQUOT:when={at}+"));
        let mut command = child::command(&words, home.path(), 0);
        let status = Load::start(command.env(child::BATCHES, "2000")).finish(&mut ledger);
        println!("{} acknowledged, then {:?}", ledger.acknowledged, ledger.errors.first());
        assert!(!ledger.poisoned && status.success(), "{status}: {:?}", ledger.errors);
        assert!(ledger.errors.iter().all(|error| error.starts_with("not-applied")), "{:?}", ledger.errors);
        assert!(ledger.errors.iter().any(|error| error.contains("no space")), "{:?}", ledger.errors);
        let store = open(home.path()).expect("the store opens");
        ledger.check_recent(&store);
        ledger.check_all(&store);
        drop(store);
        assert_whole(home.path());
        assert!(!home.path().join("quota-probe").exists());
    }
}

/// A clock that panics in the writer.
#[derive(Debug, Default)]
struct Landmine(AtomicBool);

impl Clock for Landmine {
    fn now(&self) -> Timestamp {
        assert!(!self.0.load(Ordering::SeqCst), "a panic that a test asked for");
        Timestamp::from_millis(1_000)
    }

    fn advance_to(&self, _: Timestamp) {}
}

#[test]
fn writer_panic_poisons_the_store() {
    let home = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(Landmine::default());
    let place = StoreLocation::Directory(home.path().to_owned());
    let options =
        EmbeddedOptions { reserve_bytes: 0, ..EmbeddedOptions::new(place, clock.clone(), ClockMode::Virtual) };
    let store = EmbeddedStore::open(options).expect("the store opens");
    submit(&store, 1).expect("the submission succeeds");
    let poisoning = store.wait_poisoned();
    clock.0.store(true, Ordering::SeqCst);
    let in_flight = submit(&store, 2).expect_err("the writer dies");
    assert!(in_flight.may_have_applied(), "{in_flight}");
    assert!(block_on(poisoning) && store.poisoned());
    for _ in 0..3 {
        let later = submit(&store, 3).expect_err("there is no writer");
        assert!(matches!(later, StoreError::Poisoned) && !later.may_have_applied(), "{later}");
    }
    assert_eq!(jobs_above(&store, Seq(0)).expect("looking goes on").len(), 1);
}

/// A small file system of its own, unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let at = tempfile::tempdir().expect("a directory");
        let path = at.path().to_str().expect("a path").to_owned();
        run(&["mount", "-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", &path]).then_some(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run(&["umount", "-l", self.0.path().to_str().unwrap_or_default()]);
    }
}

fn submit(store: &EmbeddedStore, number: u32) -> Result<Seq, StoreError> {
    let payload = Payload::Binary(Bytes::from(vec![number.to_le_bytes()[0]; 8_000]));
    let job = NewJob::new(JobType::new("load").expect("a type"), payload);
    let request = SubmitRequest::new(vec![Submission { queue: workload::queue("even"), job }]);
    let submitted = block_on(store.submit(request))?.expect("the rules allow it");
    Ok(submitted.first().expect("one job").seq)
}

fn claim(store: &EmbeddedStore, limit: usize) -> Vec<ClaimedJob> {
    let request = ClaimRequest {
        queues: vec![workload::queue("even")],
        limit,
        types: Vec::new(),
        terms: ClaimOptions::default(),
    };
    block_on(store.claim(request)).expect("the store gives").expect("the rules allow it")
}

fn settle(store: &EmbeddedStore, job: &ClaimedJob, outcome: Outcome) {
    let settlement = Settlement { id: job.claimed.id, token: Some(job.claimed.token), outcome };
    let verdicts = block_on(store.settle(vec![settlement])).expect("work can be ended on a full disk");
    assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
}

fn assert_all_there(store: &EmbeddedStore, acknowledged: &[(Seq, u32)]) {
    let jobs = jobs_above(store, Seq(0)).expect("reading works");
    let payloads = payloads_of(store, &jobs).expect("reading works");
    for (seq, number) in acknowledged {
        let at = jobs.iter().position(|job| job.seq == *seq).expect("an acknowledged job is there");
        let payload = payloads.get(at).and_then(Option::as_ref).expect("its payload");
        assert!(payload.bytes().iter().all(|byte| *byte == number.to_le_bytes()[0]));
    }
}

#[test]
fn full_disk_rejects_submissions_and_finishes_other_work() {
    let Some(disk) = SmallDisk::mount("16m") else {
        println!("not played: mounting is not allowed here");
        return;
    };
    let home = disk.0.path().join("store");
    let store = open(&home).expect("the store opens");
    let well = health(&store);
    assert!(well.writable() && well.reserve_bytes == Some(1 << 20), "{well:?}");
    assert!(well.free_bytes.is_some_and(|bytes| bytes > 1 << 20 && bytes < 16 << 20), "{well:?}");
    let mut acknowledged = Vec::new();
    (0..40).for_each(|number| acknowledged.push((submit(&store, number).expect("there is room"), number)));
    let running = claim(&store, 30);
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 4 << 20]).expect("there is room");
    let refused = (40..100_000).find_map(|number| match submit(&store, number) {
        Ok(seq) => {
            acknowledged.push((seq, number));
            None
        }
        Err(error) => Some(error),
    });
    let refused = refused.expect("the disk fills up");
    assert!(matches!(refused, StoreError::NotApplied(_)), "{refused}");
    assert!(refused.to_string().contains("until 1179648 bytes are free"), "{refused}");
    assert!(!store.poisoned());
    let full = health(&store);
    assert!(full.refusing.as_ref().is_some_and(|reason| reason.contains("until 1179648 bytes are free")), "{full:?}");
    assert_eq!(full.reserve_bytes, Some(0));
    finish_work(&store, &running);
    assert!(matches!(submit(&store, 1), Err(StoreError::NotApplied(_))), "still no new work");
    assert_all_there(&store, &acknowledged);

    std::fs::remove_file(&ballast).expect("it is there");
    acknowledged.push((submitted_soon(&store, 7), 7));
    assert_eq!(health(&store).refusing, None);
    println!("{} jobs fitted", acknowledged.len());
    drop(store);
    assert_whole(&home);
    assert_all_there(&open(&home).expect("the store opens"), &acknowledged);
    assert_reopens(&home);
}

/// P13, F10: the watermark does not cover a commit that failed for lack of space. After a kill the
/// store would miss that commit and refuse to open.
#[expect(clippy::disallowed_methods, reason = "what must not come announces itself by nothing")]
#[test]
fn watermark_excludes_a_commit_without_space() {
    let Some(disk) = SmallDisk::mount("16m") else {
        println!("not played: mounting is not allowed here");
        return;
    };
    let home = disk.0.path().join("store");
    let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(1_000_000)));
    let options = |home: &Path| EmbeddedOptions {
        reserve_bytes: 1 << 20,
        ..EmbeddedOptions::new(StoreLocation::Directory(home.to_owned()), clock.clone(), ClockMode::Virtual)
    };
    let store = EmbeddedStore::open(options(&home)).expect("the store opens");
    let mut acknowledged = Vec::new();
    let refused = (0..100_000).find_map(|number| match submit(&store, number) {
        Ok(seq) => {
            acknowledged.push((seq, number));
            None
        }
        Err(error) => Some(error),
    });
    assert!(matches!(refused, Some(StoreError::NotApplied(_))), "{refused:?}");
    // Longer than the interval of the watermark.
    for _ in 0..12 {
        let killed = copy_of(&home);
        assert_whole(killed.path());
        let opened = EmbeddedStore::open(options(killed.path())).expect("nothing is missing");
        assert_all_there(&opened, &acknowledged);
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn health(store: &EmbeddedStore) -> StoreHealth {
    block_on(store.health()).expect("the store answers")
}

/// A server that is not ready gets no submissions: the ticks of a full disk have to detect free
/// space.
#[expect(clippy::disallowed_methods, reason = "the store checks the disk once a second")]
#[test]
fn ticks_detect_free_space() {
    let Some(disk) = SmallDisk::mount("16m") else {
        println!("not played: mounting is not allowed here");
        return;
    };
    let store = open(&disk.0.path().join("store")).expect("the store opens");
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 8 << 20]).expect("there is room");
    assert!((0..100_000).any(|number| submit(&store, number).is_err()), "the disk fills up");
    assert!(!health(&store).writable());
    std::fs::remove_file(&ballast).expect("it is there");
    let begin = monotonic();
    while !health(&store).writable() {
        assert!(store.wakeups().deadline().is_some(), "a tick is announced");
        let budget = NonZeroUsize::new(100).expect("not zero");
        let _: Ticked = block_on(store.tick(budget)).expect("the store ticks");
        assert!(monotonic() - begin < Duration::from_secs(60), "{:?}", health(&store));
        std::thread::sleep(Duration::from_millis(20));
    }
    submit(&store, 1).expect("there is room");
}

/// Without ticks, a submission detects free space.
fn submitted_soon(store: &EmbeddedStore, number: u32) -> Seq {
    let begin = monotonic();
    loop {
        match submit(store, number) {
            Ok(seq) => return seq,
            Err(error) => assert!(monotonic() - begin < Duration::from_secs(10), "there is room again: {error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn store_on_a_full_disk_opens_and_accepts_jobs_once_there_is_space() {
    let Some(disk) = SmallDisk::mount("16m") else {
        println!("not played: mounting is not allowed here");
        return;
    };
    let home = disk.0.path().join("store");
    drop(open(&home).expect("the store opens"));
    std::fs::remove_file(home.join("disk-reserve")).expect("it is there");
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 15 << 20]).expect("there is room");
    let store = open(&home).expect("the store opens");
    assert_eq!(store.reserve_missing_at_start(), Some(1_179_648));
    let refused = submit(&store, 1).expect_err("there is no room").to_string();
    assert!(refused.contains("until 1179648 bytes are free"), "{refused}");
    std::fs::remove_file(&ballast).expect("it is there");
    submitted_soon(&store, 2);
    drop(store);
    assert_eq!(open(&home).expect("the store opens").reserve_missing_at_start(), None);
}

/// Deletions free space without help from outside.
#[test]
fn deletions_free_space_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount("96m") else {
        println!("not played: mounting is not allowed here");
        return;
    };
    let home = disk.0.path().join("store");
    let options = EmbeddedOptions { reserve_bytes: 24 << 20, ..common::options(&home) };
    let store = EmbeddedStore::open(options).expect("the store opens");
    let taken = (0..100_000).take_while(|number| submit(&store, *number).is_ok()).count();
    let refused = submit(&store, 1).expect_err("the disk is full").to_string();
    assert!(refused.contains("until 28311552 bytes are free"), "{refused}");
    println!("{taken} jobs fitted");
    for _ in 0..taken.div_ceil(100) {
        let claimed = claim(&store, 100);
        claimed.iter().for_each(|job| settle(&store, job, Outcome::Complete { result: None, progress: None }));
        for job in claimed {
            let deleted = block_on(store.admin(AdminCommand::Delete { id: job.claimed.id }));
            deleted.expect("jobs can be deleted on a full disk").expect("the rules allow it");
        }
    }
    let begin = monotonic();
    while let Err(error) = submit(&store, 2) {
        assert!(monotonic() - begin < Duration::from_secs(20), "there is room again: {error}");
        let budget = NonZeroUsize::new(10).expect("not zero");
        let _: Ticked = block_on(store.tick(budget)).expect("the store ticks");
    }
    drop(store);
    assert_whole(&home);
}

fn finish_work(store: &EmbeddedStore, running: &[ClaimedJob]) {
    for (number, job) in running.iter().enumerate() {
        let (id, token) = (job.claimed.id, Some(job.claimed.token));
        let heartbeat = Heartbeat { id, token, notes: HeartbeatData::default() };
        let beats = block_on(store.heartbeat(vec![heartbeat])).expect("leases can be extended on a full disk");
        assert!(beats.iter().all(Result::is_ok), "{beats:?}");
        let failed = || Outcome::Fail(ReportedFailure::new(ReportedCategory::Permanent, "never"));
        settle(store, job, if number % 2 == 0 { Outcome::Complete { result: None, progress: None } } else { failed() });
    }
}

fn assert_reopens(home: &Path) {
    drop(open(home).expect("the store opens"));
}
