//! A mutation test of the conformance suite: a store with any of these flaws must fail a case.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use longshore_core::Duration;
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_engine::{
    AdminCommand, BatchRefusal, ClaimRequest, EngineOptions, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use longshore_store::{
    ClaimedJob, Clock, JobQuery, JobRef, Page, QueuePosition, QueueStats, Store, StoreFuture, StoreLayer, StoreReader,
    VirtualClock,
};
use longshore_testkit::conformance::{self, StoreFixture};
use longshore_testkit::memory_store::{Disk, MemoryStore};

/// Declares [`Flaw`] and the list of all flaws.
macro_rules! flaws {
    ($($flaw:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Flaw {
            Flawless,
            $($flaw,)*
        }

        use Flaw::*;

        const FLAWS: &[Flaw] = &[$($flaw,)*];
    };
}

flaws! {
    RefusedBatchStoresFirstJob,
    ClaimExceedsLimit,
    ClaimIgnoresTypes,
    ClaimSwapsPayloads,
    SettleVerdictsReversed,
    HeartbeatVerdictsReversed,
    TickIgnoresBudget,
    TickLosesDeadline,
    TickDeadlineTooLate,
    GetReversed,
    JsonStoredAsBinary,
    PayloadTruncated,
    CursorInclusive,
    PageExceedsLimit,
    EmptyPageEndsListing,
    TagFilterIgnored,
    ErrorCodeFilterIgnored,
    KeyFilterIgnored,
    CorrelationIdFilterIgnored,
    ExternalIdFilterIgnored,
    CreationTimeFilterIgnored,
    StateFilterUsesFirstState,
    RunningCountedAsScheduled,
    QueuesReversed,
    PauseLostOnReopen,
    JobsLostOnReopen,
    LeasesExpireOnReopen,
    CountAheadIncludesJob,
    HoldIgnored,
}

#[derive(Debug)]
struct FlawedStore {
    store: MemoryStore,
    flaw: Flaw,
}

impl FlawedStore {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// Reverses a result if the store has this flaw.
    fn reverse_if<'a, T: Send + 'a>(&'a self, flaw: Flaw, call: StoreFuture<'a, Vec<T>>) -> StoreFuture<'a, Vec<T>> {
        Box::pin(async move {
            let mut items = call.await?;
            if self.has(flaw) {
                items.reverse();
            }
            Ok(items)
        })
    }

    fn miscount(&self, mut stats: QueueStats) -> QueueStats {
        if self.has(RunningCountedAsScheduled) {
            stats.counts[StateKind::Scheduled as usize] += stats.counts[StateKind::Running as usize];
            stats.counts[StateKind::Running as usize] = 0;
        }
        stats
    }

    fn corrupt(&self, payload: Payload) -> Payload {
        match payload {
            Payload::Json(bytes) if self.has(JsonStoredAsBinary) => Payload::Binary(bytes),
            Payload::Binary(bytes) if self.has(PayloadTruncated) && bytes.last() == Some(&0) => {
                Payload::Binary(bytes.slice(..bytes.len() - 1))
            }
            payload => payload,
        }
    }
}

impl StoreLayer for FlawedStore {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        Box::pin(async move {
            let first = request.submissions().next().cloned();
            let answer = self.store.submit(request).await?;
            if let (Err(_), Some(first)) = (&answer, first.filter(|_| self.has(RefusedBatchStoresFirstJob))) {
                self.store.submit(SubmitRequest::new(vec![first])).await?.ok();
            }
            Ok(answer)
        })
    }

    fn claim(&self, mut request: ClaimRequest) -> StoreFuture<'_, Result<Vec<ClaimedJob>, Refusal>> {
        if self.has(ClaimExceedsLimit) && request.limit < 1_000 && request.limit > 0 {
            request.limit += 1;
        }
        if self.has(ClaimIgnoresTypes) {
            request.types.clear();
        }
        Box::pin(async move {
            let mut answer = self.store.claim(request).await?;
            if let (Ok(jobs), true) = (&mut answer, self.has(ClaimSwapsPayloads)) {
                let longest = jobs.iter().map(|job| job.payload.clone()).max_by_key(|payload| payload.bytes().len());
                jobs.iter_mut().zip(longest).for_each(|(job, payload)| job.payload = payload);
            }
            Ok(answer)
        })
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        self.store.hold_grants(hold && !self.has(HoldIgnored))
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        self.reverse_if(SettleVerdictsReversed, self.store.settle(settlements))
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.reverse_if(HeartbeatVerdictsReversed, self.store.heartbeat(heartbeats))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        let budget = if self.has(TickIgnoresBudget) { NonZeroUsize::MAX } else { budget };
        Box::pin(async move {
            let mut ticked = self.store.tick(budget).await?;
            match self.flaw {
                TickLosesDeadline => ticked.next = None,
                TickDeadlineTooLate => ticked.next = ticked.next.map(|next| next + Duration::from_millis(1)),
                _ => {}
            }
            Ok(ticked)
        })
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        self.reverse_if(GetReversed, self.store.get(jobs))
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        Box::pin(async move {
            let payloads = self.store.payloads(jobs).await?;
            Ok(payloads.into_iter().map(|payload| payload.map(|payload| self.corrupt(payload))).collect())
        })
    }

    fn list(&self, mut query: JobQuery) -> StoreFuture<'_, Page> {
        match self.flaw {
            CursorInclusive => query.before = query.before.map(|seq| Seq(seq.0.saturating_add(1))),
            PageExceedsLimit => query.limit += 1,
            TagFilterIgnored => query.filter.tag = None,
            ErrorCodeFilterIgnored => query.filter.error_code = None,
            KeyFilterIgnored => query.filter.idempotency_key = None,
            CorrelationIdFilterIgnored => query.filter.correlation_id = None,
            ExternalIdFilterIgnored => query.filter.external_id = None,
            CreationTimeFilterIgnored => query.filter.created_before = None,
            StateFilterUsesFirstState if !query.filter.states.is_empty() => {
                query.filter.states = query.filter.states.admitted().take(1).collect();
            }
            _ => {}
        }
        Box::pin(async move {
            let mut page = self.store.list(query).await?;
            if self.has(EmptyPageEndsListing) && page.jobs.is_empty() {
                page.next = None;
            }
            Ok(page)
        })
    }

    fn count_ahead(&self, position: QueuePosition) -> StoreFuture<'_, u64> {
        Box::pin(
            async move { Ok(self.store.count_ahead(position).await? + u64::from(self.has(CountAheadIncludesJob))) },
        )
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        Box::pin(async move { Ok(self.store.queue(name).await?.map(|stats| self.miscount(stats))) })
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        let queues = self.reverse_if(QueuesReversed, self.store.queues());
        Box::pin(async move { Ok(queues.await?.into_iter().map(|stats| self.miscount(stats)).collect()) })
    }
}

fn fixture(flaw: Flaw) -> StoreFixture {
    let (clock, disk) = (conformance::clock(), Disk::new(EngineOptions::default()));
    let same_clock = Arc::clone(&clock);
    let open = move |disk: &Disk| {
        let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&same_clock);
        MemoryStore::open(disk.clone(), clock)
    };
    let first = Arc::new(FlawedStore { store: open(&disk), flaw });
    StoreFixture::new(first, Arc::clone(&clock)).reopened_by(move || {
        let store = if flaw == JobsLostOnReopen { open(&Disk::new(EngineOptions::default())) } else { open(&disk) };
        match flaw {
            PauseLostOnReopen => resume_all(&store),
            LeasesExpireOnReopen => drop(clock.advance(Duration::from_secs(31))),
            _ => {}
        }
        Arc::new(FlawedStore { store, flaw })
    })
}

fn resume_all(store: &MemoryStore) {
    use longshore_testkit::block_on::block_on;
    for stats in block_on(store.queues()).unwrap() {
        let queue = stats.queue.name.clone();
        block_on(store.admin(AdminCommand::ResumeQueue { queue })).unwrap().unwrap();
    }
}

/// Returns the names of the cases that fail on a store with this flaw.
fn failures(flaw: Flaw) -> Vec<&'static str> {
    // No flaw concerns these groups: one waits for notifications, the other runs long.
    let cases = conformance::cases().into_iter().filter(|case| !["wakeups", "concurrency"].contains(&case.group));
    let fails = |case: &conformance::Case| catch_unwind(AssertUnwindSafe(|| case.run(fixture(flaw)))).is_err();
    cases.filter(fails).map(|case| case.name).collect()
}

#[test]
fn every_flaw_fails_a_case() {
    assert_eq!(failures(Flawless), [""; 0]);
    for flaw in FLAWS.iter().copied() {
        let failed = failures(flaw);
        println!("{flaw:?}: {}", failed.join(", "));
        assert!(!failed.is_empty(), "{flaw:?} was not detected");
    }
}

/// The name of a case identifies it, on every store.
#[test]
fn case_names_are_unique() {
    let cases = conformance::cases();
    let names: std::collections::BTreeSet<_> = cases.iter().map(|case| (case.group, case.name)).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() > 100, "only {} cases", cases.len());
}
