//! A page of a listing is a snapshot: no job is missing and no job appears twice, while jobs move
//! between the tables.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use longshore_core::cancel::Force;
use longshore_core::id::{JobId, JobType, Seq};
use longshore_core::requeue::{Requeue, Reset};
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_engine::{AdminCommand, AdminResponse, Submission, SubmitRequest};
use longshore_store::{JobFilter, JobQuery, Store as _, StoreReader as _, SystemClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};
use longshore_testkit::block_on::block_on;

use common::workload;

const JOBS: usize = 200;

fn open(place: StoreLocation) -> EmbeddedStore {
    let options = EmbeddedOptions::new(place, Arc::new(SystemClock::new()), ClockMode::Real);
    EmbeddedStore::open(EmbeddedOptions { reserve_bytes: 0, ..options }).expect("the store opens")
}

fn submit(store: &EmbeddedStore, count: usize) -> Vec<JobId> {
    let one = || {
        let job = NewJob::new(JobType::new("load").expect("a type"), Payload::Binary(Bytes::new()));
        Submission { queue: workload::queue("even"), job }
    };
    let request = SubmitRequest::new((0..count).map(|_| one()).collect());
    let submitted = block_on(store.submit(request)).expect("the store takes it").expect("the rules allow it");
    submitted.iter().map(|job| job.id).collect()
}

fn cancel(id: JobId) -> AdminCommand {
    AdminCommand::Cancel { id, reason: None, force: Force::ByPolicy }
}

fn requeue(id: JobId) -> AdminCommand {
    AdminCommand::Requeue { id, how: Requeue { counters: Reset::Keep, run_at: None } }
}

/// Cancels and requeues jobs until the stop.
fn move_about(store: &EmbeddedStore, ids: &[JobId], stop: &AtomicBool) {
    for id in ids.iter().cycle() {
        for command in [cancel(*id), requeue(*id)] {
            let _: AdminResponse = block_on(store.admin(command)).expect("the store does it").expect("it may be done");
        }
        if stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Lists all numbers by pages. Each page is a snapshot, and each job is on the page of its number.
fn listed(store: &EmbeddedStore, filter: &JobFilter, limit: usize) -> Vec<Seq> {
    let (mut numbers, mut before) = (Vec::new(), None);
    loop {
        let query = JobQuery { filter: filter.clone(), limit, before };
        let page = block_on(store.list(query)).expect("jobs are listed");
        numbers.extend(page.jobs.iter().map(|job| job.seq));
        match page.next {
            Some(next) => before = Some(next),
            None => return numbers,
        }
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Lists many times while jobs move.
fn assert_nothing_is_missed(store: &EmbeddedStore, rounds: usize) {
    let ids = submit(store, JOBS);
    let (stop, everything) = (AtomicBool::new(false), JobFilter::default());
    let all: Vec<Seq> = listed(store, &everything, 1_000);
    assert_eq!(all.len(), JOBS);
    let of_queue = JobFilter { queue: Some(workload::queue("even")), ..JobFilter::default() };
    let ended = JobFilter { states: StateKind::Cancelled.into(), ..JobFilter::default() };
    thread::scope(|scope| {
        for ids in ids.chunks(JOBS / 2) {
            let stop = &stop;
            scope.spawn(move || move_about(store, ids, stop));
        }
        let _end = StopAtEnd(&stop);
        for _ in 0..rounds {
            for (filter, limit) in [(&everything, 1_000), (&of_queue, 1_000), (&of_queue, 7)] {
                assert_eq!(listed(store, filter, limit), all, "{filter:?}");
            }
            // Only moving jobs may be missing; none appears twice.
            let moving = listed(store, &ended, 1_000);
            assert_eq!(moving.iter().collect::<BTreeSet<_>>().len(), moving.len());
            assert!(moving.len() <= 2, "{moving:?}");
        }
    });
}

#[test]
fn page_is_complete_while_jobs_move() {
    let home = tempfile::tempdir().expect("a directory");
    assert_nothing_is_missed(&open(StoreLocation::Directory(home.path().to_owned())), 60);
}

#[test]
fn page_is_complete_in_memory() {
    // In memory a reader waits for the writer, so a page takes longer.
    assert_nothing_is_missed(&open(StoreLocation::Memory), 3);
}

/// A filter without an index: a page may be empty although more matches follow.
#[test]
fn listing_continues_behind_jobs_that_do_not_match() {
    let store = open(StoreLocation::Memory);
    let first = submit(&store, 1);
    (0..5).for_each(|_| drop(submit(&store, 1_000)));
    let filter = JobFilter { error_code: Some("none".into()), ..JobFilter::default() };
    let (mut pages, mut before) = (0, None);
    loop {
        let query = JobQuery { filter: filter.clone(), limit: 10, before };
        let page = block_on(store.list(query)).expect("jobs are listed");
        pages += 1;
        match page.next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    assert!(pages > 2, "{} and 5,000 others were looked at on {pages} pages", first.len());
}
