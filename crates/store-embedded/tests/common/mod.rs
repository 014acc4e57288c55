//! Common parts of the crash, corruption and disk tests: a workload that reports acknowledged
//! changes, and a ledger of them.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test says no by panicking")]

pub(crate) mod child;
pub(crate) mod dump;
pub(crate) mod history;
pub(crate) mod ledger;
pub(crate) mod power;
pub(crate) mod sample_store;
pub(crate) mod strace;
pub(crate) mod workload;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::rng::{Rng, SeededRng};
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_engine::count_of;
use longshore_store::clock::monotonic;
use longshore_store::{JobFilter, JobQuery, StoreError, StoreReader, SystemClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};
use longshore_testkit::block_on::block_on;

/// Options of a production store, with a small reserve.
pub(crate) fn options(directory: &Path) -> EmbeddedOptions {
    let place = StoreLocation::Directory(directory.to_owned());
    EmbeddedOptions {
        reserve_bytes: 1 << 20,
        ..EmbeddedOptions::new(place, Arc::new(SystemClock::new()), ClockMode::Real)
    }
}

pub(crate) fn open(directory: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(options(directory))
}

/// Creates a directory in memory if possible, for stores that are copied and opened many times.
pub(crate) fn fast_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// Returns names and contents of all files of a directory.
pub(crate) fn files_of(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (PathBuf::from(path.file_name().expect("a name")), fs::read(&path).expect("bytes")))
        .collect();
    files.sort();
    files
}

/// Copies the files of a directory. A copy of a running store has the state after a kill.
pub(crate) fn copy_of(directory: &Path) -> tempfile::TempDir {
    let copy = fast_directory();
    for (name, bytes) in files_of(directory) {
        fs::write(copy.path().join(name), bytes).expect("a file");
    }
    copy
}

/// Returns the commit in the watermark file, or 0.
pub(crate) fn read_watermark(directory: &Path) -> i64 {
    let bytes = fs::read(directory.join("longshore.watermark")).unwrap_or_default();
    let slots = [0, 4_096].into_iter().filter_map(|offset| bytes.get(offset..offset + 8));
    slots.map(|bytes| i64::from_le_bytes(bytes.try_into().expect("eight bytes"))).max().unwrap_or(0)
}

/// Waits until the watermark covers a commit.
#[expect(clippy::disallowed_methods, reason = "a busy loop would compete with the checkpoint thread")]
pub(crate) fn wait_for_watermark(directory: &Path, commit_seq: i64) {
    let start = monotonic();
    while read_watermark(directory) < commit_seq {
        assert!(monotonic() - start < std::time::Duration::from_secs(60), "the watermark does not reach {commit_seq}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Returns a random number from `least` to `most`, inclusive.
pub(crate) fn between(rng: &mut SeededRng, least: u64, most: u64) -> u64 {
    let rng: &mut dyn Rng = rng;
    least + rng.uniform_inclusive(most - least)
}

/// Returns all jobs above a number, newest first.
pub(crate) fn jobs_above(store: &dyn StoreReader, above: Seq) -> Result<Vec<Arc<Job>>, StoreError> {
    let (mut jobs, mut before) = (Vec::new(), None);
    loop {
        let page = block_on(store.list(JobQuery { filter: JobFilter::default(), limit: 1_000, before }))?;
        jobs.extend(page.jobs.into_iter().filter(|job| job.seq > above));
        match page.next {
            Some(next) if next > above => before = Some(next),
            Some(_) | None => return Ok(jobs),
        }
    }
}

pub(crate) fn payloads_of(store: &dyn StoreReader, jobs: &[Arc<Job>]) -> Result<Vec<Option<Payload>>, StoreError> {
    let mut payloads = Vec::new();
    for some in jobs.chunks(1_000) {
        payloads.extend(block_on(store.payloads(some.iter().map(|job| job.seq).collect()))?);
    }
    Ok(payloads)
}

/// Checks that the counts of the queues match the jobs, and that every job has a queue.
pub(crate) fn assert_counts(store: &dyn StoreReader, all: &[Arc<Job>]) {
    let elsewhere = assert_counts_of_queues(store, all);
    assert!(elsewhere.is_empty(), "jobs of no queue: {elsewhere:?}");
}

/// Checks that the counts of the queues match the jobs. Returns the jobs without a queue.
pub(crate) fn assert_counts_of_queues(store: &dyn StoreReader, all: &[Arc<Job>]) -> BTreeMap<(String, StateKind), u64> {
    let mut counted = BTreeMap::<(String, StateKind), u64>::new();
    for job in all {
        *counted.entry((job.queue.to_string(), job.kind())).or_default() += 1;
    }
    for report in block_on(store.queues()).expect("queues are listed") {
        for state in StateKind::ALL {
            let counted = counted.remove(&(report.queue.name.to_string(), *state)).unwrap_or(0);
            assert_eq!(count_of(&report.counts, *state), counted, "{state} jobs of {}", report.queue.name);
        }
    }
    counted
}

/// Checks that a closed store has no problems.
pub(crate) fn assert_whole(directory: &Path) {
    let diagnosis = longshore_store_embedded::examine(directory).expect("the store can be examined");
    assert!(diagnosis.problems.is_empty(), "{:#?}", diagnosis.problems);
}
