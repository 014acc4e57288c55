//! Data directories: behind links, but without links among their files (S33); on read-only file
//! systems; with files missing or from another store (F07).

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use longshore_core::id::Seq;
use longshore_core::time::Timestamp;
use longshore_store::{Clock as _, Store as _, StoreError, SystemClock};
use longshore_store_embedded::{EmbeddedStore, SourceState, backup_directory, examine, restore};
use longshore_testkit::block_on::block_on;

use common::strace::run;
use common::workload::BatchName;
use common::{assert_whole, copy_of, fast_directory, jobs_above, open};

const DATABASE: &str = "longshore.db";
const LOG: &str = "longshore.db-wal";

fn submit(store: &EmbeddedStore, number: u64) {
    let name = BatchName { cycle: 1, thread: 0, number };
    drop(block_on(store.submit(name.request())).expect("the store takes it").expect("the rules allow it"));
}

fn now() -> Timestamp {
    SystemClock::new().now()
}

#[test]
fn directory_may_be_behind_links() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    fs::create_dir(at("parent")).expect("a directory");
    symlink(at("parent"), at("link")).expect("a link");
    let store = open(&at("link").join("store")).expect("the store opens behind a link");
    submit(&store, 0);
    // The same directory by another name.
    let second = open(&at("parent").join("store")).expect_err("it is in use").to_string();
    assert!(second.contains("in use"), "{second}");
    let copied = backup_directory(&at("link").join("store"), &at("link").join("beside")).expect("a backup");
    assert_eq!(copied, SourceState::InUse);
    drop(store);
    assert_whole(&at("link").join("store"));
    symlink(at("parent").join("store"), at("itself")).expect("a link");
    let copied = backup_directory(&at("itself"), &at("link").join("copy")).expect("a backup");
    assert_eq!(copied, SourceState::Closed);
    restore(&at("link").join("copy"), &at("link").join("restored"), now()).expect("it can be restored");
    assert_whole(&at("link").join("restored"));
    let store = open(&at("itself")).expect("the store opens");
    assert!(!jobs_above(&store, Seq(0)).expect("jobs are listed").is_empty());
}

#[test]
fn open_names_a_path_that_is_not_a_directory() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    drop(open(&at("store")).expect("the store opens"));
    fs::write(at("file"), "a letter").expect("a file");
    symlink(at("nowhere"), at("dangling")).expect("a link");
    let check = |what: &str, message: Result<(), StoreError>| {
        let message = message.expect_err("it is not a directory").to_string();
        assert!(message.contains("is not a directory"), "{what}: {message}");
    };
    for path in [at("file"), at("dangling"), at("file").join("below")] {
        check("open", open(&path).map(drop));
        check("backup from", backup_directory(&path, &at("copy")).map(drop));
        check("backup to", backup_directory(&at("store"), &path).map(drop));
        check("restore from", restore(&path, &at("restored"), now()));
        check("restore to", restore(&at("store"), &path, now()));
        check("examine", examine(&path).map(drop));
    }
    assert_eq!(fs::read(at("file")).expect("a file"), b"a letter");
    assert!(!at("nowhere").exists());
}

#[test]
fn open_refuses_links_among_the_files() {
    for name in ["longshore.db", "longshore.lock", "longshore.watermark"] {
        let root = tempfile::tempdir().expect("a directory");
        let (home, elsewhere) = (root.path().join("store"), root.path().join("elsewhere"));
        drop(open(&home).expect("the store opens"));
        fs::rename(home.join(name), &elsewhere).expect("a file");
        symlink(&elsewhere, home.join(name)).expect("a link");
        let before = fs::read(&elsewhere).expect("bytes");
        let message = open(&home).expect_err("a link is not followed").to_string();
        assert!(message.contains(name) && message.contains("symbolic link"), "{name}: {message}");
        assert_eq!(fs::read(&elsewhere).expect("bytes"), before, "{name}");
    }
}

/// A read-only file system of its own, unmounted at the end.
struct ReadOnly(tempfile::TempDir);

impl ReadOnly {
    fn holding(what: &Path) -> Option<Self> {
        let at = tempfile::tempdir().expect("a directory");
        let path = at.path().to_str().expect("a path").to_owned();
        if !run(&["mount", "-t", "tmpfs", "tmpfs", &path]) {
            return None;
        }
        let disk = Self(at);
        let copied = run(&["cp", "-a", what.to_str().expect("a path"), &format!("{path}/store")]);
        (copied && run(&["mount", "-o", "remount,ro", &path])).then_some(disk)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        run(&["umount", "-l", self.0.path().to_str().unwrap_or_default()]);
    }
}

#[test]
fn backup_on_a_read_only_file_system_can_be_examined_and_restored() {
    let root = tempfile::tempdir().expect("a directory");
    let at = |name: &str| root.path().join(name);
    let store = open(&at("store")).expect("the store opens");
    submit(&store, 0);
    block_on(store.backup(at("copy"))).expect("a backup");
    let Some(killed) = ReadOnly::holding(&at("store")) else {
        println!("not played: mounting is not allowed here");
        return;
    };
    drop(store);
    let message = examine(&killed.0.path().join("store")).expect_err("its log would have to be worked on").to_string();
    assert!(message.contains("copy the directory"), "{message}");
    for (what, jobs) in [("copy", true), ("store", true)] {
        let disk = ReadOnly::holding(&at(what)).expect("mounting is allowed");
        let found = examine(&disk.0.path().join("store")).expect("it can be looked at");
        assert!(found.problems.is_empty() && (found.live_jobs > 0) == jobs, "{found:?}");
        restore(&disk.0.path().join("store"), &at(&format!("from-{what}")), now()).expect("it can be restored");
        assert_whole(&at(&format!("from-{what}")));
    }
}

/// F07: a missing or empty database with a watermark is not a new store.
#[test]
fn open_refuses_a_directory_that_lost_its_database() {
    let home = fast_directory();
    let store = open(home.path()).expect("the store opens");
    submit(&store, 0);
    let killed = copy_of(home.path());
    drop(store);
    let remove = |home: &Path, name: &str| drop(fs::remove_file(home.join(name)));
    let empty = |home: &Path, name: &str| fs::write(home.join(name), "").expect("a file");
    type Change<'a> = &'a dyn Fn(&Path);
    let changes: [(&str, Change<'_>); 5] = [
        ("emptied", &|home| empty(home, DATABASE)),
        ("emptied, no log", &|home| {
            empty(home, DATABASE);
            remove(home, LOG);
        }),
        ("both emptied", &|home| {
            empty(home, DATABASE);
            empty(home, LOG);
        }),
        ("gone", &|home| remove(home, DATABASE)),
        ("all gone", &|home| [DATABASE, LOG, "longshore.db-shm"].iter().for_each(|name| remove(home, name))),
    ];
    for (from, home) in [("stopped", home.path()), ("killed", killed.path())] {
        for (what, change) in changes {
            let changed = copy_of(home);
            change(changed.path());
            let refused = open(changed.path()).expect_err("it is no new store").to_string();
            assert!(refused.contains("database") || refused.contains("belongs to a store"), "{refused}");
            assert!(examine(changed.path()).is_err(), "{from}, {what}");
        }
    }
    // Without the watermark the directory accepts a new store.
    let cleared = copy_of(home.path());
    [DATABASE, LOG, "longshore.db-shm", "longshore.watermark"].iter().for_each(|name| remove(cleared.path(), name));
    assert!(jobs_above(&open(cleared.path()).expect("a new store"), Seq(0)).expect("jobs are listed").is_empty());
}

/// F07: the database of another store beside this store's watermark.
#[test]
fn open_refuses_the_database_of_another_store() {
    let (ours, theirs) = (fast_directory(), fast_directory());
    for home in [ours.path(), theirs.path()] {
        submit(&open(home).expect("the store opens"), 0);
    }
    fs::copy(theirs.path().join(DATABASE), ours.path().join(DATABASE)).expect("a file");
    for refused in [open(ours.path()).map(drop), examine(ours.path()).map(drop)] {
        let refused = refused.expect_err("it is not ours").to_string();
        assert!(refused.contains("longshore.watermark") && refused.contains("another store"), "{refused}");
    }
    // The operator deletes the watermark to accept the database.
    fs::remove_file(ours.path().join("longshore.watermark")).expect("a note");
    drop(open(ours.path()).expect("the store opens"));
}
