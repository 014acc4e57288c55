//! Backups under load are consistent, and leases of the backup are void after a restore (F16, P4).

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use longshore_core::claim::ClaimOptions;
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::Seq;
use longshore_core::patch::SettingsPatch;
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::time::{Duration, Timestamp};
use longshore_engine::{AdminCommand, ClaimRequest, Heartbeat, Settlement};
use longshore_store::{ClaimedJob, Clock, Store as _, SystemClock, VirtualClock};
use longshore_store_embedded::{
    ClockMode, EmbeddedOptions, EmbeddedStore, SourceState, StoreLocation, backup_directory, restore,
};
use longshore_testkit::block_on::block_on;
use longshore_testkit::conformance;

use common::strace::run;
use common::workload::{self, BatchName};
use common::{assert_counts, assert_whole, copy_of, files_of, jobs_above, open};

fn now() -> Timestamp {
    SystemClock::new().now()
}

fn claim(store: &EmbeddedStore, limit: usize) -> Vec<ClaimedJob> {
    let queues = vec![workload::queue("even"), workload::queue("odd")];
    let request = ClaimRequest { queues, limit, types: Vec::new(), terms: ClaimOptions::default() };
    block_on(store.claim(request)).expect("the store gives").expect("the rules allow it")
}

fn submit(store: &EmbeddedStore, thread: u64, number: u64) {
    let name = BatchName { cycle: 1, thread, number };
    drop(block_on(store.submit(name.request())).expect("the store takes it").expect("the rules allow it"));
}

fn complete(store: &EmbeddedStore, claimed: &[ClaimedJob]) -> Vec<Result<StateKind, Refusal>> {
    let one = |job: &ClaimedJob| Settlement {
        id: job.claimed.id,
        token: Some(job.claimed.token),
        outcome: Outcome::Complete { result: None, progress: None },
    };
    block_on(store.settle(claimed.iter().map(one).collect())).expect("the store settles")
}

#[test]
fn backup_under_load_is_a_consistent_snapshot() {
    const SUBMITTERS: u64 = 3;
    let home = tempfile::tempdir().expect("a directory");
    let store = open(home.path()).expect("the store opens");
    let stop = AtomicBool::new(false);
    let answered: Vec<AtomicU64> = (0..SUBMITTERS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let (store, stop) = (&store, &stop);
        for (thread, answered) in (0..).zip(&answered) {
            scope.spawn(move || {
                for number in 0.. {
                    submit(store, thread, number);
                    answered.store(number + 1, Ordering::SeqCst);
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
        scope.spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                drop(complete(store, &claim(store, 8)));
            }
        });
        // Stops the other threads on a failure, too.
        let _end = StopAtEnd(stop);
        for round in 0..5 {
            // The workload makes progress between two backups.
            while answered.iter().any(|count| count.load(Ordering::SeqCst) < (round + 1) * 20) {
                thread::yield_now();
            }
            let before: Vec<u64> = answered.iter().map(|count| count.load(Ordering::SeqCst)).collect();
            let copy = home.path().join(format!("backup-{round}"));
            block_on(store.backup(copy.clone())).expect("a backup");
            let after: Vec<u64> = answered.iter().map(|count| count.load(Ordering::SeqCst) + 1).collect();
            assert_one_instant(&copy, &before, &after);
        }
    });
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Checks that the backup has everything acknowledged before its start, nothing requested after its
/// end, and no gap.
fn assert_one_instant(copy: &Path, before: &[u64], after: &[u64]) {
    assert_whole(copy);
    let restored = copy.with_extension("restored");
    restore(copy, &restored, now()).expect("it can be restored");
    assert_whole(&restored);
    let store = open(&restored).expect("it opens");
    let all = jobs_above(&store, Seq(0)).expect("jobs are listed");
    assert_counts(&store, &all);
    workload::assert_payloads(&store, &all);
    let mut batches = BTreeMap::<u64, BTreeMap<u64, u64>>::new();
    for job in &all {
        let key = job.idempotency.as_ref().expect("a key");
        let name = BatchName::parse(&key.key).expect("a name");
        *batches.entry(name.thread).or_default().entry(name.number).or_default() += 1;
    }
    for (thread, (before, after)) in (0..).zip(before.iter().zip(after)) {
        let numbers = batches.remove(&thread).unwrap_or_default();
        let count = numbers.len() as u64;
        assert!((*before..=*after).contains(&count), "{count} batches between {before} and {after}");
        for (expected, (number, jobs)) in (0..).zip(numbers) {
            assert_eq!((number, jobs), (expected, BatchName { cycle: 1, thread, number }.size()), "a whole prefix");
        }
    }
}

fn in_virtual_time(directory: &Path, clock: &Arc<VirtualClock>) -> EmbeddedStore {
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let options = EmbeddedOptions::new(StoreLocation::Directory(directory.to_owned()), clock, ClockMode::Virtual);
    EmbeddedStore::open(EmbeddedOptions { reserve_bytes: 0, ..options }).expect("the store opens")
}

#[test]
fn restore_voids_leases_and_raises_lease_versions() {
    let (clock, root) = (conformance::clock(), tempfile::tempdir().expect("a directory"));
    let mut home = root.path().join("store-0");
    let (mut highest, mut old) = (0, Vec::<ClaimedJob>::new());
    for round in 0..3 {
        let store = in_virtual_time(&home, &clock);
        (0..4).for_each(|number| submit(&store, 0, round * 10 + number));
        let running = claim(&store, 6);
        let copy = root.path().join(format!("backup-{round}"));
        block_on(store.backup(copy.clone())).expect("a backup");
        // The original continues and grants leases that the backup does not have.
        let later = claim(&store, 6);
        assert!(!running.is_empty() && !later.is_empty());
        old.extend(running.into_iter().chain(later));
        highest = old.iter().map(|job| job.claimed.version.0).fold(highest, u64::max);
        drop(store);

        home = root.path().join(format!("store-{}", round + 1));
        restore(&copy, &home, now()).expect("it can be restored");
        assert_whole(&home);
        let store = in_virtual_time(&home, &clock);
        for verdict in complete(&store, &old) {
            let refusal = verdict.expect_err("an old lease ends nothing");
            assert_eq!(refusal.code(), "stale_lease");
        }
        let beat = |job: &ClaimedJob| Heartbeat {
            id: job.claimed.id,
            token: Some(job.claimed.token),
            notes: HeartbeatData::default(),
        };
        for verdict in block_on(store.heartbeat(old.iter().map(beat).collect())).expect("the store extends") {
            assert_eq!(verdict.expect_err("an old lease is not extended").code(), "stale_lease");
        }
        // Running jobs expire and get a lease version above all others.
        clock.advance(Duration::from_hours(1));
        let budget = NonZeroUsize::new(1_000).expect("not zero");
        let _: longshore_engine::Ticked = block_on(store.tick(budget)).expect("the store ticks");
        let fresh = claim(&store, 1_000);
        let given: BTreeSet<Seq> = fresh.iter().map(|job| job.claimed.seq).collect();
        assert!(old.iter().any(|job| given.contains(&job.claimed.seq)), "an orphan is given again");
        for job in &fresh {
            let version = job.claimed.version.0;
            assert!(version > highest, "version {version} of job {} is not above {highest}", job.claimed.seq);
        }
        assert!(complete(&store, &fresh).iter().all(Result::is_ok), "new leases hold");
        highest = fresh.iter().map(|job| job.claimed.version.0).fold(highest, u64::max);
        old.extend(fresh);
        // Settling a completed job again is idempotent; the next round has its own leases.
        old.clear();
    }
}

/// Two restores of one backup: lease versions of the second are above those of the first.
#[test]
fn two_restores_of_a_backup_share_no_lease_version() {
    let (clock, root) = (conformance::clock(), tempfile::tempdir().expect("a directory"));
    let store = in_virtual_time(&root.path().join("store"), &clock);
    submit(&store, 0, 0);
    let copy = root.path().join("copy");
    block_on(store.backup(copy.clone())).expect("a backup");
    let first_version = |home: &str, now: Timestamp| {
        let home = root.path().join(home);
        restore(&copy, &home, now).expect("it can be restored");
        let claimed = claim(&in_virtual_time(&home, &clock), 1);
        claimed.first().expect("a job").claimed.version.0
    };
    let begin = now();
    let one = first_version("one", begin);
    let two = first_version("two", begin + Duration::from_millis(1));
    let later = first_version("later", begin + Duration::from_hours(24 * 365 * 60));
    assert!(one > 1 << 32 && two > one + 1_000 && later > two, "{one} {two} {later}");
    assert!(later < 1 << 53, "not every reader of JSON could tell {later} from its neighbours");
    // After the clock was set back, versions are still above those in the backup.
    assert!(first_version("early", Timestamp::from_millis(0)) > 1 << 32);
}

/// F10: a failed copy is deleted, and its space is free again.
#[test]
fn copy_on_a_full_disk_leaves_no_files() {
    let root = tempfile::tempdir().expect("a directory");
    let small = root.path().join("small");
    fs::create_dir(&small).expect("a directory");
    let path = small.to_str().expect("a path").to_owned();
    if !run(&["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", &path]) {
        println!("not played: mounting is not allowed here");
        return;
    }
    let store = open(&root.path().join("store")).expect("the store opens");
    (0..200).for_each(|number| submit(&store, 0, number));
    let failed = [block_on(store.backup(small.join("copy"))).expect_err("there is no room"), {
        block_on(store.backup(root.path().join("copy"))).expect("a backup");
        restore(&root.path().join("copy"), &small.join("copy"), now()).expect_err("there is no room")
    }];
    let left: Vec<_> = files_of(&small.join("copy")).into_iter().map(|(name, _)| name).collect();
    run(&["umount", "-l", &path]);
    assert!(
        failed.iter().all(|error| error.to_string().contains("full") || error.to_string().contains("space")),
        "{failed:?}"
    );
    assert!(left.iter().all(|name| name.as_os_str() == "longshore.lock"), "{left:?}");
}

/// An interrupted restore is not an empty store.
#[test]
fn open_refuses_a_partial_copy() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let store = open(&at("store")).expect("the store opens");
    submit(&store, 0, 0);
    block_on(store.backup(at("copy"))).expect("a backup");
    fs::create_dir(at("half")).expect("a directory");
    fs::write(at("half").join("longshore.db.partial"), "half").expect("a file");
    let refused = open(&at("half")).expect_err("it is none").to_string();
    assert!(refused.contains("incomplete backup or restore"), "{refused}");
    restore(&at("copy"), &at("half"), now()).expect("it is done again");
    let store = open(&at("half")).expect("the store opens");
    assert!(workload::ask_again(&store, BatchName { cycle: 1, thread: 0, number: 0 }).0);
}

#[test]
fn backup_and_restore_refuse_an_existing_target() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let store = open(&at("store")).expect("the store opens");
    submit(&store, 0, 0);
    block_on(store.backup(at("copy"))).expect("a backup");
    let bytes = || fs::read(at("copy").join("longshore.db")).expect("bytes");
    let before = bytes();
    submit(&store, 0, 1);
    drop(block_on(store.backup(at("copy"))).expect_err("there is a backup already"));
    drop(block_on(store.backup(at("store"))).expect_err("there is a store already"));
    assert!(bytes() == before);
    drop(restore(&at("copy"), &at("store"), now()).expect_err("the store is at work"));
    drop(store);
    drop(restore(&at("copy"), &at("store"), now()).expect_err("there is a store already"));
    drop(restore(&at("copy"), &at("copy"), now()).expect_err("a backup is not restored onto itself"));
    assert!(bytes() == before);
    drop(restore(&at("nothing"), &at("new"), now()).expect_err("there is no backup"));
    restore(&at("copy"), &at("new"), now()).expect("a failed restore leaves no files");
    let store = open(&at("store")).expect("the store opens");
    assert!(workload::ask_again(&store, BatchName { cycle: 1, thread: 0, number: 1 }).0);
}

/// The database without the WAL is incomplete.
#[test]
fn restore_refuses_a_data_directory_with_a_wal() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let store = open(&at("store")).expect("the store opens");
    submit(&store, 0, 0);
    let killed = copy_of(&at("store"));
    for (from, to) in [(at("store"), at("from-work")), (killed.path().to_owned(), at("from-killed"))] {
        let refused = restore(&from, &to, now()).expect_err("a log belongs to it").to_string();
        assert!(refused.contains("is a store, not a backup") && refused.contains("longshore backup"), "{refused}");
        assert!(!to.join("longshore.db").exists());
    }
    drop(store);
    // The database of a stopped store is complete. The restore holds its lock.
    restore(&at("store"), &at("from-stopped"), now()).expect("there is no log");
    let store = open(&at("from-stopped")).expect("it opens");
    assert!(workload::ask_again(&store, BatchName { cycle: 1, thread: 0, number: 0 }).0);
    drop(store);
    let at_work = fs::File::open(at("store").join("longshore.lock")).expect("a lock");
    at_work.lock().expect("it is free");
    let refused = restore(&at("store"), &at("from-locked"), now()).expect_err("it is at work").to_string();
    assert!(refused.contains("is a store, not a backup"), "{refused}");
}

/// SQLite would apply the journal of a killed copy to the next one.
#[test]
fn copy_ignores_the_journal_of_a_killed_copy() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let store = open(&at("store")).expect("the store opens");
    (0..8).for_each(|number| submit(&store, 0, number));
    block_on(store.backup(at("copy"))).expect("a backup");
    // A journal after a kill: of a database with the same name and other pages.
    let other = rusqlite::Connection::open(at("longshore.db.partial")).expect("a database");
    other.execute_batch("CREATE TABLE a(b); PRAGMA cache_size = 2; PRAGMA cache_spill = 1").expect("a table");
    let fill = "INSERT INTO a SELECT randomblob(900) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL \
                SELECT i + 1 FROM n WHERE i < 400) SELECT i FROM n)";
    other.execute_batch(fill).expect("rows");
    other.execute_batch("BEGIN; UPDATE a SET b = randomblob(900)").expect("an update");
    let journal = fs::read(at("longshore.db.partial-journal")).expect("a journal");
    assert!(journal.len() > 100_000);
    let leave = |directory: &Path| {
        fs::create_dir_all(directory).expect("a directory");
        for (ending, bytes) in [("", b"rest".as_slice()), ("-journal", &journal), ("-wal", &journal), ("-shm", b"x")] {
            fs::write(directory.join(format!("longshore.db.partial{ending}")), bytes).expect("a file");
        }
    };
    leave(&at("restored"));
    restore(&at("copy"), &at("restored"), now()).expect("it can be restored");
    assert_whole(&at("restored"));
    leave(&at("second-copy"));
    block_on(store.backup(at("second-copy"))).expect("a backup");
    assert_whole(&at("second-copy"));
    for directory in ["restored", "second-copy"] {
        let names: Vec<_> = files_of(&at(directory)).into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| !name.to_string_lossy().contains("partial")), "{names:?}");
    }
}

/// A copy of a refused store would look complete.
#[test]
fn backup_refuses_a_store_that_cannot_be_opened() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let store = open(&at("store")).expect("the store opens");
    (0..8).for_each(|number| submit(&store, 0, number));
    let early = copy_of(&at("store"));
    (8..16).for_each(|number| submit(&store, 0, number));
    drop(store);
    // The WAL was checkpointed and the watermark advanced; then an older database was put back.
    fs::copy(at("store").join("longshore.watermark"), early.path().join("longshore.watermark")).expect("a file");
    let refused = open(early.path()).expect_err("it is of an earlier moment").to_string();
    assert!(refused.contains("data is missing"), "{refused}");
    let refused = backup_directory(early.path(), &at("copy")).expect_err("nor is it copied").to_string();
    assert!(refused.contains("data is missing"), "{refused}");
    assert!(!at("copy").join("longshore.db").exists());
    fs::remove_file(early.path().join("longshore.db-wal")).expect("a log");
    let refused = restore(early.path(), &at("restored"), now()).expect_err("nor restored").to_string();
    assert!(refused.contains("data is missing"), "{refused}");
    assert!(!at("restored").join("longshore.db").exists());
    assert_eq!(backup_directory(&at("store"), &at("copy")).expect("the backup succeeds"), SourceState::Closed);
    let store = open(&at("store")).expect("the store opens");
    submit(&store, 0, 16);
    assert_eq!(backup_directory(&at("store"), &at("beside")).expect("the backup succeeds"), SourceState::InUse);
}

/// Payloads are private (S33).
#[cfg(unix)]
#[test]
fn copies_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let store = open(&at("store")).expect("the store opens");
    submit(&store, 0, 0);
    block_on(store.backup(at("copy"))).expect("a backup");
    // The permissions of the copy may have been changed.
    fs::set_permissions(at("copy").join("longshore.db"), fs::Permissions::from_mode(0o644)).expect("it is ours");
    restore(&at("copy"), &at("restored"), now()).expect("it can be restored");
    fs::set_permissions(at("copy").join("longshore.db"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    assert_eq!(backup_directory(&at("restored"), &at("again")).expect("a backup"), SourceState::Closed);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    for directory in ["restored", "again"] {
        assert_eq!(mode(&at(directory)), 0o700, "{directory}");
        for (name, _) in files_of(&at(directory)) {
            assert_eq!(mode(&at(directory).join(&name)), 0o600, "{directory}/{}", name.display());
        }
    }
}

/// P4: leases of the original would be valid in a backup that is served directly.
#[test]
fn open_refuses_a_backup() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let store = open(&at("store")).expect("the store opens");
    submit(&store, 0, 0);
    block_on(store.backup(at("copy"))).expect("a backup");
    let copied = fs::read(at("copy").join("longshore.db")).expect("a copy");
    let refused = open(&at("copy")).expect_err("a backup").to_string();
    assert!(refused.contains("longshore restore"), "{refused}");
    assert!(fs::read(at("copy").join("longshore.db")).expect("a copy") == copied, "a refusal changes nothing");
    assert_whole(&at("copy"));
    assert!(backup_directory(&at("copy"), &at("copy-of-copy")).is_ok());
    restore(&at("copy-of-copy"), &at("again"), now()).expect("it can be restored");
    let again = open(&at("again")).expect("it opens");
    assert_eq!(claim(&again, 100).len(), claim(&store, 100).len());
}

/// No worker has the token of a restored run. The restore sets an expiry for a run without one.
#[test]
fn restore_expires_runs_without_a_timeout() {
    let (clock, root) = (conformance::clock(), tempfile::tempdir().expect("a directory"));
    let at = |name: &str| root.path().join(name);
    let store = in_virtual_time(&at("store"), &clock);
    let mut overrides = SettingsPatch::default();
    let never = Some(Duration::ZERO);
    (overrides.job.lease, overrides.job.execution_timeout) = (never, never);
    for queue in ["even", "odd"] {
        let overrides = Some(Box::new(overrides.clone()));
        let put = AdminCommand::PutQueue { queue: workload::queue(queue), profile: None, overrides };
        block_on(store.admin(put)).expect("the store takes it").expect("the rules allow it");
    }
    submit(&store, 0, 0);
    let lost = claim(&store, 100);
    assert!(!lost.is_empty() && lost.iter().all(|job| job.claimed.expires_at.is_none()));
    block_on(store.backup(at("copy"))).expect("a backup");
    restore(&at("copy"), &at("again"), now()).expect("it can be restored");
    let again = in_virtual_time(&at("again"), &clock);
    let budget = NonZeroUsize::new(100).expect("above 0");
    block_on(again.tick(budget)).expect("the store ticks");
    assert_eq!(claim(&again, 100).len(), lost.len());
    assert!(complete(&again, &lost).iter().all(Result::is_err));
}
