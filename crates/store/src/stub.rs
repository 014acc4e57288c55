//! A store with fixed results, for the tests of store layers.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{JobId, JobType, QueueName, Seq, WorkerName, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::time::Timestamp;
use longshore_core::workflow::Workflow;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, Submission, SubmitRequest,
    Submitted, SystemKind, Ticked,
};

use longshore_core::directive::WorkerDirective;

use crate::change_feed::{ChangeFeed, WakeupsSender};
use crate::error::StoreError;
use crate::grant::{Grant, Park, SettledGrant};
use crate::health::StoreHealth;
use crate::query::{JobQuery, MemberQuery, Page, QueuePosition, WorkflowPage, WorkflowQuery};
use crate::store::{JobRef, QueueStats, Store, StoreFuture, StoreReader};
use crate::system::{SystemQuery, SystemRecord, SystemRefusal, SystemWrite, SystemWritten};
use crate::workers::{ReportedWorker, SeenWorker};

/// Larger batches are refused.
const BATCH_MAX: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Stub {
    /// Submissions never return.
    hangs: bool,
    /// Errors of the next writes.
    errors: Mutex<VecDeque<StoreError>>,
}

impl Stub {
    pub(crate) fn hanging() -> Self {
        Self { hangs: true, ..Self::default() }
    }

    /// Returns these errors from the first writes.
    pub(crate) fn failing(errors: impl IntoIterator<Item = StoreError>) -> Self {
        Self { errors: Mutex::new(errors.into_iter().collect()), ..Self::default() }
    }

    fn write<'a, T: Send + 'a>(&'a self, result: T) -> StoreFuture<'a, T> {
        let error = self.errors.lock().unwrap().pop_front();
        Box::pin(std::future::ready(error.map_or(Ok(result), Err)))
    }
}

fn ready<'a, T: Send + 'a>(result: T) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Ok(result)))
}

impl Store for Stub {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        if self.hangs {
            return Box::pin(std::future::pending());
        }
        let fits = (1..=BATCH_MAX).contains(&request.batch.len());
        self.write(if fits { Ok(Vec::new()) } else { Err(Refusal::JobNotFound.into()) })
    }

    fn claim_or_park(&self, request: ClaimRequest, _: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        self.write(if request.limit > 0 { Ok(Grant::delivered(Vec::new())) } else { Err(Refusal::JobNotFound) })
    }

    fn parked_claims(&self) -> usize {
        0
    }

    fn hold_grants(&self, _: bool) -> StoreFuture<'_, ()> {
        ready(())
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        let verdict = |index| if index == 0 { Ok(StateKind::Completed) } else { Err(Refusal::JobNotFound) };
        self.write((0..settlements.len()).map(verdict).collect())
    }

    fn settle_and_claim(
        &self,
        settlements: Vec<Settlement>,
        request: ClaimRequest,
    ) -> StoreFuture<'_, Result<SettledGrant, Refusal>> {
        let verdict = |index| if index == 0 { Ok(StateKind::Completed) } else { Err(Refusal::JobNotFound) };
        let verdicts = (0..settlements.len()).map(verdict).collect();
        let settled = SettledGrant { verdicts, grant: Grant::delivered(Vec::new()) };
        self.write(if request.limit > 0 { Ok(settled) } else { Err(Refusal::JobNotFound) })
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.write(heartbeats.iter().map(|_| Err(Refusal::JobNotFound)).collect())
    }

    fn set_directive(&self, _: WorkerName, _: WorkerDirective) -> StoreFuture<'_, ()> {
        self.write(())
    }

    fn report_workers(&self, _: Vec<SeenWorker>) -> StoreFuture<'_, ()> {
        ready(())
    }

    fn watch_events(&self) -> StoreFuture<'_, u64> {
        ready(0)
    }

    fn announce_schedule(
        &self,
        _: Arc<str>,
        _: QueueName,
        _: longshore_core::ScheduleChange,
        _: Timestamp,
    ) -> StoreFuture<'_, ()> {
        ready(())
    }

    fn admin(&self, _: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        self.write(Err(Refusal::QueueNotFound))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        self.write(Ticked { done: budget.get(), next: None })
    }

    fn write_system(&self, _: SystemWrite) -> StoreFuture<'_, Result<SystemWritten, SystemRefusal>> {
        self.write(Err(SystemRefusal::Conflict { index: 0 }))
    }

    fn wakeups(&self) -> ChangeFeed {
        WakeupsSender::default().subscribe()
    }
}

impl StoreReader for Stub {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(17)
    }

    fn directive(&self, _: Option<&WorkerName>) -> WorkerDirective {
        WorkerDirective::Run
    }

    fn reported_workers(&self, _: Timestamp) -> StoreFuture<'_, Vec<ReportedWorker>> {
        ready(Vec::new())
    }

    fn system_records(&self, _: SystemQuery) -> StoreFuture<'_, Vec<SystemRecord>> {
        ready(Vec::new())
    }

    fn system_version(&self, _: SystemKind) -> StoreFuture<'_, u64> {
        ready(1)
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        ready(StoreHealth::default())
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        ready(jobs.iter().map(|_| None).collect())
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        ready(jobs.iter().map(|_| None).collect())
    }

    fn list(&self, _: JobQuery) -> StoreFuture<'_, Page> {
        ready(Page { jobs: Vec::new(), next: None })
    }

    fn count_ahead(&self, _: QueuePosition) -> StoreFuture<'_, u64> {
        ready(0)
    }

    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        ready(Totals::default())
    }

    fn workflow(&self, _: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        ready(None)
    }

    fn workflows(&self, _: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        ready(WorkflowPage { workflows: Vec::new(), next: None })
    }

    fn members(&self, _: MemberQuery) -> StoreFuture<'_, Page> {
        ready(Page { jobs: Vec::new(), next: None })
    }

    fn queue(&self, _: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        ready(None)
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        ready(Vec::new())
    }
}

/// Returns the result of a call that completes at once.
pub(crate) fn finish<T>(mut call: StoreFuture<'_, T>) -> Result<T, StoreError> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the stub does not block"),
    }
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn id() -> JobId {
    JobId::from_bytes([7; 16])
}

pub(crate) fn job() -> JobRef {
    JobRef::Id(id())
}

pub(crate) fn submission(jobs: usize) -> SubmitRequest {
    let job = NewJob::new(JobType::new("work").unwrap(), Payload::Binary(Bytes::new()));
    SubmitRequest::new(vec![Submission { queue: queue(), job }; jobs])
}

pub(crate) fn claim(limit: usize) -> ClaimRequest {
    ClaimRequest { queues: vec![queue()], limit, types: Vec::new(), terms: ClaimOptions::default() }
}

pub(crate) fn settlement() -> Settlement {
    Settlement { id: id(), token: None, outcome: Outcome::Release }
}

pub(crate) fn pause() -> AdminCommand {
    AdminCommand::PauseQueue { queue: queue() }
}
