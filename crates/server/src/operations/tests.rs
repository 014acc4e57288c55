//! Two servers on one store, and slices that were interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_api::operation::OperationFilter;
use longshore_core::id::{JobType, OperationId, QueueName};
use longshore_core::operation::{OperationAction, OperationProgress, OperationState, UndoProgress, UndoState};
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::{Duration, Timestamp};
use longshore_engine::{Submission, SubmitRequest, SystemKind};
use longshore_store::{
    Clock, JobFilter, JobQuery, Store, StoreError, StoreFuture, StoreLayer, SystemRefusal, SystemWrite, SystemWritten,
    VirtualClock,
};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};

use super::selection::Selection;
use super::storage::{self, StoredOperation};
use super::work::{NextStep, WorkingServer, step};
use crate::background::dead_letters::DeadLetters;

const ONE: WorkingServer = WorkingServer { number: 1, is_alone: false };
const OTHER: WorkingServer = WorkingServer { number: 2, is_alone: false };

fn payload() -> Payload {
    Payload::Json(bytes::Bytes::from_static(b"1"))
}

fn id() -> OperationId {
    OperationId::from_bytes([7; 16])
}

/// A store that fails one write of operations.
#[derive(Debug)]
struct Failing {
    store: Arc<dyn Store>,
    /// Writes until the one that fails; 0: none fails.
    failing: AtomicUsize,
}

impl StoreLayer for Failing {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write_system(&self, write: SystemWrite) -> StoreFuture<'_, Result<SystemWritten, SystemRefusal>> {
        let left = self.failing.load(Ordering::Relaxed);
        self.failing.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 1 && write.changes.iter().any(|change| change.kind == SystemKind::Operation) {
            return Box::pin(async { Err(StoreError::not_applied(std::io::Error::other("killed"))) });
        }
        self.store.write_system(write)
    }
}

struct Fixture {
    store: Failing,
    clock: Arc<VirtualClock>,
}

impl Fixture {
    /// A store with so many scheduled jobs and an operation that cancels them.
    async fn new(jobs: usize, action: OperationAction, rate: Option<u32>) -> Self {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(1_794_700_800_000)));
        let mut options = EmbeddedOptions::new(StoreLocation::Memory, clock.clone(), ClockMode::Virtual);
        options.reserve_bytes = 0;
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(options).unwrap());
        let queue = QueueName::new("q").unwrap();
        let submission =
            |_| Submission { queue: queue.clone(), job: NewJob::new(JobType::new("t").unwrap(), payload()) };
        store.submit(SubmitRequest::new((0..jobs).map(submission).collect())).await.unwrap().unwrap();
        let filter = OperationFilter { queue: Some("q".to_owned()), ..OperationFilter::default() };
        let selection = Selection::parse(filter.clone()).unwrap();
        let (last, matched) = (selection.last(&*store).await.unwrap(), selection.counter(&*store).await.unwrap());
        assert_eq!(matched, Some(jobs as u64));
        let mut operation = OperationProgress::new(action, last, matched, clock.now());
        operation.rate = rate;
        operation.start(clock.now());
        storage::create(&*store, &StoredOperation::new(id(), filter, operation)).await.unwrap();
        Self { store: Failing { store, failing: AtomicUsize::new(0) }, clock }
    }

    fn fail_after(&self, writes: usize) {
        self.store.failing.store(writes + 1, Ordering::Relaxed);
    }

    async fn step(&self, server: WorkingServer) -> Result<NextStep, StoreError> {
        step(&self.store, server, id(), &DeadLetters::default()).await
    }

    /// Steps until nothing is due.
    async fn finish(&self, server: WorkingServer) -> OperationProgress {
        while self.step(server).await.unwrap() == NextStep::Now {}
        self.operation().await
    }

    async fn operation(&self) -> OperationProgress {
        storage::read(&self.store, id()).await.unwrap().unwrap().operation
    }

    async fn count(&self, state: StateKind) -> usize {
        let filter = JobFilter { states: state.into(), ..JobFilter::default() };
        self.store.store.list(JobQuery { filter, limit: 1_000, before: None }).await.unwrap().jobs.len()
    }
}

#[tokio::test]
async fn a_slice_that_was_interrupted_counts_every_job_once() {
    // The first write plans the slice, the second one records its result.
    let fixture = Fixture::new(30, OperationAction::Cancel, None).await;
    fixture.fail_after(1);
    fixture.step(ONE).await.unwrap();
    fixture.step(ONE).await.unwrap_err();
    assert_eq!(fixture.count(StateKind::Cancelled).await, 30, "the jobs are changed");
    let before = fixture.operation().await;
    assert_eq!((before.changed, before.slice.map(|slice| slice.jobs.len())), (0, Some(30)));
    let done = fixture.finish(ONE).await;
    assert_eq!((done.state, done.changed, done.refused), (OperationState::Done, 30, 0));
}

#[tokio::test]
async fn an_interrupted_undo_counts_every_job_once() {
    let fixture = Fixture::new(5, OperationAction::Cancel, None).await;
    fixture.finish(ONE).await;
    let undo = |stored: &mut StoredOperation, now| {
        stored.operation.start_undo(now).unwrap();
        Ok::<_, StoreError>(true)
    };
    storage::change(&fixture.store, id(), undo).await.unwrap();
    fixture.fail_after(0);
    fixture.step(ONE).await.unwrap_err();
    assert_eq!(fixture.count(StateKind::Scheduled).await, 5);
    let done = fixture.finish(ONE).await;
    let expected = UndoProgress { state: UndoState::Done, at: fixture.clock.now(), undone: 5, kept: 0 };
    assert_eq!((done.undo, done.is_settled()), (Some(expected), true));
}

#[tokio::test]
async fn another_server_takes_over_when_the_lease_has_ended() {
    let fixture = Fixture::new(10, OperationAction::Cancel, Some(10)).await;
    // One slice is planned, and its server is killed.
    assert_eq!(fixture.step(ONE).await.unwrap(), NextStep::Now);
    let until = fixture.clock.now() + Duration::from_secs(10);
    assert_eq!(fixture.step(OTHER).await.unwrap(), NextStep::At(until), "the operation is held");
    assert_eq!(fixture.count(StateKind::Cancelled).await, 0);
    fixture.clock.advance_to(until);
    assert_eq!(fixture.step(OTHER).await.unwrap(), NextStep::Now);
    assert_eq!(fixture.operation().await.changed, 1);
    // The first server lives after all: now it waits.
    assert!(matches!(fixture.step(ONE).await.unwrap(), NextStep::At(at) if at > until));
    for _ in 0..20 {
        while fixture.step(OTHER).await.unwrap() == NextStep::Now {}
        fixture.clock.advance_to(fixture.clock.now() + Duration::from_millis(100));
    }
    let done = fixture.operation().await;
    assert_eq!((done.state, done.changed, done.refused), (OperationState::Done, 10, 0));
}

#[tokio::test]
async fn a_stop_during_a_slice_keeps_its_result() {
    let fixture = Fixture::new(10, OperationAction::Cancel, Some(10)).await;
    fixture.step(ONE).await.unwrap();
    let stop = |stored: &mut StoredOperation, now| Ok::<_, StoreError>(stored.operation.stop(now).unwrap());
    storage::change(&fixture.store, id(), stop).await.unwrap();
    fixture.finish(ONE).await;
    let stopped = fixture.operation().await;
    assert_eq!((stopped.state, stopped.changed, stopped.remaining()), (OperationState::Stopped, 1, 9));
}
