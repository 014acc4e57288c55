//! Directories that a process may not open: in use, of another clock mode, newer or foreign. They
//! stay unchanged (F13, P18).

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_core::id::Seq;
use longshore_store::{Store as _, StoreError, SystemClock, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation, examine};
use longshore_testkit::block_on::block_on;
use rusqlite::Connection;

use common::workload::BatchName;
use common::{copy_of, fast_directory, files_of, jobs_above, sample_store};

const DATABASE: &str = "longshore.db";

fn open(directory: &Path) -> Result<EmbeddedStore, StoreError> {
    let clock = Arc::new(VirtualClock::new(sample_store::BEGIN));
    let location = StoreLocation::Directory(directory.to_owned());
    let options = EmbeddedOptions::new(location, clock, ClockMode::Virtual);
    EmbeddedStore::open(EmbeddedOptions { reserve_bytes: 4_096, reader_threads: 1, ..options })
}

/// Submits one batch. Returns the number of its jobs, also if it exists.
fn submit_batch(store: &EmbeddedStore) -> usize {
    let name = BatchName { cycle: 2, thread: 0, number: 0 };
    block_on(store.submit(name.request())).expect("the store takes it").expect("the rules allow it").len()
}

/// Payloads are private (S33).
#[cfg(unix)]
#[test]
fn files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = fast_directory();
    let store = open(&home.path().join("store")).expect("the store opens");
    submit_batch(&store);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&home.path().join("store")), 0o700);
    let names: Vec<PathBuf> = files_of(&home.path().join("store")).into_iter().map(|(name, _)| name).collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        assert_eq!(mode(&home.path().join("store").join(&name)), 0o600, "{}", name.display());
    }
}

#[test]
fn directory_is_opened_once() {
    let home = fast_directory();
    let store = open(home.path()).expect("the store opens");
    for _ in 0..100 {
        let second = open(home.path()).expect_err("a second opening");
        assert!(second.to_string().contains("in use"), "{second}");
    }
    assert!(examine(home.path()).is_err(), "examine refuses a store in use");
    drop(store);
    drop(open(home.path()).expect("it is free again"));
}

/// Returns all files that a refused open must leave unchanged. Empty files and the WAL index are
/// recreated by every reader.
fn everything_in(home: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let is_relevant = |(name, bytes): &(PathBuf, Vec<u8>)| name.as_os_str() != "longshore.db-shm" && !bytes.is_empty();
    files_of(home).into_iter().filter(is_relevant).collect()
}

#[test]
fn open_refuses_another_clock_mode() {
    for (made, opened) in [(ClockMode::Virtual, ClockMode::Real), (ClockMode::Real, ClockMode::Virtual)] {
        let open_in = |home: &Path, clock_mode| {
            let clock = Arc::new(SystemClock::new());
            let location = StoreLocation::Directory(home.to_owned());
            let options = EmbeddedOptions::new(location, clock, clock_mode);
            EmbeddedStore::open(EmbeddedOptions { reserve_bytes: 0, ..options })
        };
        let home = fast_directory();
        let store = open_in(home.path(), made).expect("the store opens");
        submit_batch(&store);
        // After a kill, with everything in the WAL, and after a close.
        let killed = copy_of(home.path());
        drop(store);
        for home in [killed.path(), home.path()] {
            let before = everything_in(home);
            let error = open_in(home, opened).expect_err("another clock mode");
            assert!(matches!(error, StoreError::Format(_)), "{error}");
            assert!(everything_in(home) == before, "something was rewritten");
            let store = open_in(home, made).expect("as before");
            assert_eq!(jobs_above(&store, Seq(0)).expect("jobs are listed").len(), submit_batch(&store));
        }
    }
}

#[test]
fn newer_and_foreign_databases_are_refused_unchanged() {
    for (statement, message) in [
        ("PRAGMA user_version = 2", "version 2"),
        ("PRAGMA user_version = 999", "version 999"),
        ("PRAGMA application_id = 7", "another program"),
        ("", "another program"),
    ] {
        let home = fast_directory();
        if statement.is_empty() {
            let connection = Connection::open(home.path().join(DATABASE)).expect("a database");
            connection.execute_batch("CREATE TABLE theirs(a); INSERT INTO theirs VALUES (1)").expect("a table");
        } else {
            drop(open(home.path()).expect("the store opens"));
            let connection = Connection::open(home.path().join(DATABASE)).expect("a database");
            connection.execute_batch(statement).expect("it is changed");
        }
        let before = everything_in(home.path());
        let error = open(home.path()).expect_err("not ours");
        assert!(matches!(error, StoreError::Format(_)) && error.to_string().contains(message), "{error}");
        assert!(examine(home.path()).is_err());
        assert!(everything_in(home.path()) == before, "something was rewritten ({message})");
    }
    let home = fast_directory();
    fs::write(home.path().join(DATABASE), "This is a letter to my aunt. ".repeat(500)).expect("a file");
    let before = everything_in(home.path());
    for error in [open(home.path()).map(drop), examine(home.path()).map(drop)] {
        let error = error.expect_err("not a database");
        assert!(
            matches!(error, StoreError::Format(_)) && error.to_string().contains("not a Longshore database"),
            "{error}"
        );
    }
    assert!(everything_in(home.path()) == before, "something was rewritten");
}
