//! The conformance suite is worth something only if a store with a flaw fails it.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::workflow::Workflow;
use longshore_core::{Duration, Timestamp};
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, EngineOptions, Heartbeat, Settlement, SubmitRequest,
    Submitted, Ticked,
};
use longshore_store::{
    ChangeFeed, ClaimedJob, Clock, Grant, JobQuery, JobRef, MemberQuery, Page, Park, QueuePosition, QueueStats, Store,
    StoreFuture, StoreHealth, StoreReader, VirtualClock, WorkflowPage, WorkflowQuery,
};
use longshore_testkit::conformance::{self, StoreFixture};
use longshore_testkit::memory_store::{Disk, MemoryStore};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    Flawless,
    RefusedBatchesLeaveTheirFirstJob,
    ClaimsOneMore,
    ClaimsIgnoreTypes,
    ClaimsMixUpPayloads,
    VerdictsBackwards,
    HeartbeatsBackwards,
    TicksWithoutBudget,
    TicksForgetTheNext,
    TicksComeLate,
    AnswersBackwards,
    JsonBecomesBinary,
    PayloadsLoseAByte,
    CursorIsShownAgain,
    PagesTooLong,
    PagesStopEarly,
    TagsNotFiltered,
    ErrorCodesNotFiltered,
    KeysNotFiltered,
    CorrelationIdsNotFiltered,
    ExternalIdsNotFiltered,
    CreationTimesNotFiltered,
    OneStateOfSeveral,
    CountsLag,
    QueuesBackwards,
    PausesForgotten,
    EverythingForgotten,
    LeasesRunOut,
    EverybodyStandsBehindHimself,
    HoldsIgnored,
}

use Flaw::*;

const FLAWS: [Flaw; 29] = [
    RefusedBatchesLeaveTheirFirstJob,
    ClaimsOneMore,
    ClaimsIgnoreTypes,
    ClaimsMixUpPayloads,
    VerdictsBackwards,
    HeartbeatsBackwards,
    TicksWithoutBudget,
    TicksForgetTheNext,
    TicksComeLate,
    AnswersBackwards,
    JsonBecomesBinary,
    PayloadsLoseAByte,
    CursorIsShownAgain,
    PagesTooLong,
    PagesStopEarly,
    TagsNotFiltered,
    ErrorCodesNotFiltered,
    KeysNotFiltered,
    CorrelationIdsNotFiltered,
    ExternalIdsNotFiltered,
    CreationTimesNotFiltered,
    OneStateOfSeveral,
    CountsLag,
    QueuesBackwards,
    PausesForgotten,
    EverythingForgotten,
    LeasesRunOut,
    EverybodyStandsBehindHimself,
    HoldsIgnored,
];

#[derive(Debug)]
struct Flawed {
    store: MemoryStore,
    flaw: Flaw,
}

impl Flawed {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// Turned round where the flaw is there.
    fn turn<'a, T: Send + 'a>(&'a self, flaw: Flaw, answer: StoreFuture<'a, Vec<T>>) -> StoreFuture<'a, Vec<T>> {
        Box::pin(async move {
            let mut answer = answer.await?;
            if self.has(flaw) {
                answer.reverse();
            }
            Ok(answer)
        })
    }

    fn report(&self, mut report: QueueStats) -> QueueStats {
        if self.has(CountsLag) {
            report.counts[StateKind::Scheduled as usize] += report.counts[StateKind::Running as usize];
            report.counts[StateKind::Running as usize] = 0;
        }
        report
    }

    fn spoil(&self, payload: Payload) -> Payload {
        match payload {
            Payload::Json(bytes) if self.has(JsonBecomesBinary) => Payload::Binary(bytes),
            Payload::Binary(bytes) if self.has(PayloadsLoseAByte) && bytes.last() == Some(&0) => {
                Payload::Binary(bytes.slice(..bytes.len() - 1))
            }
            payload => payload,
        }
    }
}

impl Store for Flawed {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        Box::pin(async move {
            let first = request.batch.first().cloned();
            let answer = self.store.submit(request).await?;
            if let (Err(_), Some(first)) = (&answer, first.filter(|_| self.has(RefusedBatchesLeaveTheirFirstJob))) {
                self.store.submit(SubmitRequest::new(vec![first])).await?.ok();
            }
            Ok(answer)
        })
    }

    fn claim(&self, mut request: ClaimRequest) -> StoreFuture<'_, Result<Vec<ClaimedJob>, Refusal>> {
        if self.has(ClaimsOneMore) && request.limit < 1_000 && request.limit > 0 {
            request.limit += 1;
        }
        if self.has(ClaimsIgnoreTypes) {
            request.types.clear();
        }
        Box::pin(async move {
            let mut answer = self.store.claim(request).await?;
            if let (Ok(jobs), true) = (&mut answer, self.has(ClaimsMixUpPayloads)) {
                let longest = jobs.iter().map(|job| job.payload.clone()).max_by_key(|payload| payload.bytes().len());
                jobs.iter_mut().zip(longest).for_each(|(job, payload)| job.payload = payload);
            }
            Ok(answer)
        })
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        self.store.claim_or_park(request, park)
    }

    fn parked_claims(&self) -> usize {
        self.store.parked_claims()
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        self.store.hold_grants(hold && !self.has(HoldsIgnored))
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        self.turn(VerdictsBackwards, self.store.settle(settlements))
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.turn(HeartbeatsBackwards, self.store.heartbeat(heartbeats))
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        self.store.admin(command)
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        let budget = if self.has(TicksWithoutBudget) { NonZeroUsize::MAX } else { budget };
        Box::pin(async move {
            let mut ticked = self.store.tick(budget).await?;
            match self.flaw {
                TicksForgetTheNext => ticked.next = None,
                TicksComeLate => ticked.next = ticked.next.map(|next| next + Duration::from_millis(1)),
                _ => {}
            }
            Ok(ticked)
        })
    }

    fn wakeups(&self) -> ChangeFeed {
        self.store.wakeups()
    }
}

impl StoreReader for Flawed {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        self.store.health()
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        self.turn(AnswersBackwards, self.store.get(jobs))
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        Box::pin(async move {
            let payloads = self.store.payloads(jobs).await?;
            Ok(payloads.into_iter().map(|payload| payload.map(|payload| self.spoil(payload))).collect())
        })
    }

    fn list(&self, mut query: JobQuery) -> StoreFuture<'_, Page> {
        match self.flaw {
            CursorIsShownAgain => query.before = query.before.map(|seq| Seq(seq.0.saturating_add(1))),
            PagesTooLong => query.limit += 1,
            TagsNotFiltered => query.filter.tag = None,
            ErrorCodesNotFiltered => query.filter.error_code = None,
            KeysNotFiltered => query.filter.idempotency_key = None,
            CorrelationIdsNotFiltered => query.filter.correlation_id = None,
            ExternalIdsNotFiltered => query.filter.external_id = None,
            CreationTimesNotFiltered => query.filter.created_before = None,
            OneStateOfSeveral if !query.filter.states.is_empty() => {
                query.filter.states = query.filter.states.admitted().take(1).collect();
            }
            _ => {}
        }
        Box::pin(async move {
            let mut page = self.store.list(query).await?;
            if self.has(PagesStopEarly) && page.jobs.is_empty() {
                page.next = None;
            }
            Ok(page)
        })
    }

    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        self.store.ocypod_totals()
    }

    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64> {
        Box::pin(
            async move { Ok(self.store.count_ahead(place).await? + u64::from(self.has(EverybodyStandsBehindHimself))) },
        )
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        self.store.workflow(id)
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        self.store.workflows(query)
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        self.store.members(query)
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        Box::pin(async move { Ok(self.store.queue(name).await?.map(|report| self.report(report))) })
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        let queues = self.turn(QueuesBackwards, self.store.queues());
        Box::pin(async move { Ok(queues.await?.into_iter().map(|report| self.report(report)).collect()) })
    }
}

fn world(flaw: Flaw) -> StoreFixture {
    let (clock, disk) = (conformance::clock(), Disk::new(EngineOptions::default()));
    let same_clock = Arc::clone(&clock);
    let open = move |disk: &Disk| {
        let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&same_clock);
        MemoryStore::open(disk.clone(), clock)
    };
    let first = Arc::new(Flawed { store: open(&disk), flaw });
    StoreFixture::new(first, Arc::clone(&clock)).reopened_by(move || {
        let store = if flaw == EverythingForgotten { open(&Disk::new(EngineOptions::default())) } else { open(&disk) };
        match flaw {
            PausesForgotten => forget_pauses(&store),
            LeasesRunOut => drop(clock.advance(Duration::from_secs(31))),
            _ => {}
        }
        Arc::new(Flawed { store, flaw })
    })
}

fn forget_pauses(store: &MemoryStore) {
    use longshore_testkit::block_on::block_on;
    for report in block_on(store.queues()).unwrap() {
        let queue = report.queue.name.clone();
        block_on(store.admin(AdminCommand::ResumeQueue { queue })).unwrap().unwrap();
    }
}

/// Names of the cases that fail on a store with this flaw.
fn failures(flaw: Flaw) -> Vec<&'static str> {
    // Wake-ups that never come are waited for, and storms are loud: both say nothing about these flaws.
    let cases = conformance::cases().into_iter().filter(|case| !["wakeups", "concurrency"].contains(&case.group));
    let fails = |case: &conformance::Case| catch_unwind(AssertUnwindSafe(|| case.play(world(flaw)))).is_err();
    cases.filter(fails).map(|case| case.name).collect()
}

#[test]
fn every_flaw_fails_some_case_and_no_flaw_fails_none() {
    assert_eq!(failures(Flawless), [""; 0]);
    for flaw in FLAWS {
        let failed = failures(flaw);
        println!("{flaw:?}: {}", failed.join(", "));
        assert!(!failed.is_empty(), "{flaw:?} was not noticed");
    }
}

/// Names are the same whatever is behind them: each case once.
#[test]
fn each_case_has_a_name_of_its_own() {
    let cases = conformance::cases();
    let names: std::collections::BTreeSet<_> = cases.iter().map(|case| (case.group, case.name)).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() > 100, "only {} cases", cases.len());
}
