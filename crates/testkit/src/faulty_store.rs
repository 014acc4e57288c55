//! A store layer that injects faults, for tests of the components above a store.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::Arc;

use longshore_core::refusal::Refusal;
use longshore_core::rng::Rng;
use longshore_engine::ClaimRequest;
use longshore_store::{ClaimedJob, Store, StoreError, StoreFuture, StoreLayer};
use parking_lot::{Mutex, MutexGuard};

/// The outcome of one call: whether it is applied, and what the caller receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Applied; the caller receives the result.
    None,
    /// Not applied; the caller receives [`StoreError::NotApplied`].
    NotApplied,
    /// Applied; the caller receives [`StoreError::Unknown`].
    AnswerLost,
    /// Not applied; the caller receives [`StoreError::Unknown`].
    RequestLost,
    /// This call returns [`StoreError::Unknown`]; all later writes return [`StoreError::Poisoned`].
    Poison { applied: bool },
}

/// The faults of calls, in the order in which calls are made. By default reads do not fail.
pub struct Faults {
    source: FaultSource,
    reads: bool,
}

enum FaultSource {
    /// No faults after the end of the script.
    Script(VecDeque<Fault>),
    Random {
        rng: Box<dyn Rng + Send>,
        per_mille: u64,
    },
}

impl Faults {
    pub fn none() -> Self {
        Self::scripted([])
    }

    /// One fault per call. Calls after the last one succeed.
    pub fn scripted(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { source: FaultSource::Script(faults.into_iter().collect()), reads: false }
    }

    /// This many calls succeed, and the next one poisons the store.
    pub fn poison_after(calls: usize, applied: bool) -> Self {
        let successes = std::iter::repeat_n(Fault::None, calls);
        Self::scripted(successes.chain([Fault::Poison { applied }]))
    }

    /// About `per_mille` of a thousand calls fail, in one of the three ways that do not poison the
    /// store.
    pub fn random(rng: impl Rng + Send + 'static, per_mille: u64) -> Self {
        Self { source: FaultSource::Random { rng: Box::new(rng), per_mille }, reads: false }
    }

    /// Lets reads fail too. They draw from the same faults and return an error for each of them.
    #[must_use]
    pub fn including_reads(self) -> Self {
        Self { reads: true, ..self }
    }

    fn next(&mut self) -> Fault {
        match &mut self.source {
            FaultSource::Script(script) => script.pop_front().unwrap_or(Fault::None),
            FaultSource::Random { rng, per_mille } => {
                let rng: &mut dyn Rng = rng.as_mut();
                if rng.uniform_inclusive(999) >= *per_mille {
                    return Fault::None;
                }
                match rng.uniform_inclusive(2) {
                    0 => Fault::NotApplied,
                    1 => Fault::AnswerLost,
                    _ => Fault::RequestLost,
                }
            }
        }
    }
}

impl Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            FaultSource::Script(script) => write!(f, "Faults({script:?}"),
            FaultSource::Random { per_mille, .. } => write!(f, "Faults({per_mille} of 1000"),
        }?;
        f.write_str(if self.reads { ", including reads)" } else { ")" })
    }
}

/// The cause of an injected error.
#[derive(Debug)]
struct Injected;

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault injected by a test")
    }
}

impl std::error::Error for Injected {}

/// A store layer that injects faults.
#[derive(Debug)]
pub struct FaultyStore {
    store: Arc<dyn Store>,
    plan: Mutex<Plan>,
}

#[derive(Debug)]
struct Plan {
    faults: Faults,
    poisoned: bool,
}

impl FaultyStore {
    pub fn new(store: Arc<dyn Store>, faults: Faults) -> Self {
        Self { store, plan: Mutex::new(Plan { faults, poisoned: false }) }
    }

    /// Replaces the faults of later calls. A poisoned store stays poisoned.
    pub fn set(&self, faults: Faults) {
        self.plan().faults = faults;
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock()
    }
}

fn failed<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}

impl StoreLayer for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    /// Draws the fault when the call is made, so that a script follows the order of calls and not
    /// the order of their completion.
    fn write<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let fault = {
            let mut plan = self.plan();
            if plan.poisoned {
                return failed(StoreError::Poisoned);
            }
            let fault = plan.faults.next();
            plan.poisoned = matches!(fault, Fault::Poison { .. });
            fault
        };
        let (applied, error) = match fault {
            Fault::None => return call(&*self.store),
            Fault::NotApplied => (false, StoreError::not_applied(Injected)),
            Fault::AnswerLost => (true, StoreError::unknown(Injected)),
            Fault::RequestLost => (false, StoreError::unknown(Injected)),
            Fault::Poison { applied } => (applied, StoreError::unknown(Injected)),
        };
        if !applied {
            return failed(error);
        }
        Box::pin(async move {
            drop(call(&*self.store).await?);
            Err(error)
        })
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let fault = {
            let mut plan = self.plan();
            let fault = if plan.faults.reads { plan.faults.next() } else { Fault::None };
            plan.poisoned |= matches!(fault, Fault::Poison { .. });
            fault
        };
        match fault {
            Fault::None => call(&*self.store),
            Fault::NotApplied | Fault::AnswerLost | Fault::RequestLost => failed(StoreError::not_applied(Injected)),
            Fault::Poison { .. } => failed(StoreError::Poisoned),
        }
    }

    /// A response that is lost has left the store, so its leases are not returned.
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Result<Vec<ClaimedJob>, Refusal>> {
        self.write(|store| store.claim(request))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use longshore_core::claim::ClaimOptions;
    use longshore_core::id::{JobId, JobType, QueueName, Seq};
    use longshore_core::rng::SeededRng;
    use longshore_core::settle::Outcome;
    use longshore_core::submit::{NewJob, Payload};
    use longshore_engine::{AdminCommand, EngineOptions, Settlement, Submission, SubmitRequest};

    use super::*;
    use crate::block_on::block_on;
    use crate::conformance;
    use crate::memory_store::{Disk, MemoryStore};

    /// Counts the writes that completed.
    #[derive(Debug)]
    struct WriteCounter {
        store: MemoryStore,
        writes: AtomicUsize,
    }

    impl StoreLayer for WriteCounter {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn write<'a, T: Send + 'a>(
            &'a self,
            call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
        ) -> StoreFuture<'a, T> {
            Box::pin(async move {
                let result = call(&self.store).await;
                self.writes.fetch_add(1, Ordering::SeqCst);
                result
            })
        }
    }

    struct Fixture {
        counter: Arc<WriteCounter>,
        faulty: Arc<FaultyStore>,
        store: Arc<dyn Store>,
    }

    impl Fixture {
        fn new(faults: Faults) -> Self {
            let store = MemoryStore::open(Disk::new(EngineOptions::default()), conformance::clock());
            let counter = Arc::new(WriteCounter { store, writes: AtomicUsize::new(0) });
            let faulty = Arc::new(FaultyStore::new(Arc::<WriteCounter>::clone(&counter), faults));
            Self { counter, store: Arc::<FaultyStore>::clone(&faulty), faulty }
        }

        fn writes(&self) -> usize {
            self.counter.writes.load(Ordering::SeqCst)
        }

        fn submit(&self) -> Result<(), StoreError> {
            let job = NewJob::new(JobType::new("work").unwrap(), Payload::Binary(Bytes::new()));
            block_on(self.store.submit(SubmitRequest::new(vec![Submission { queue: queue(), job }]))).map(drop)
        }
    }

    fn queue() -> QueueName {
        QueueName::new("q").unwrap()
    }

    fn claim() -> ClaimRequest {
        ClaimRequest { queues: vec![queue()], limit: 1, types: Vec::new(), terms: ClaimOptions::default() }
    }

    #[test]
    fn fault_decides_application_and_error() {
        for (fault, applied, may_have_applied) in [
            (Fault::None, 1, None),
            (Fault::NotApplied, 0, Some(false)),
            (Fault::AnswerLost, 1, Some(true)),
            (Fault::RequestLost, 0, Some(true)),
            (Fault::Poison { applied: false }, 0, Some(true)),
            (Fault::Poison { applied: true }, 1, Some(true)),
        ] {
            let fixture = Fixture::new(Faults::scripted([fault]));
            let error = fixture.submit().err();
            assert_eq!(error.map(|error| error.may_have_applied()), may_have_applied, "{fault:?}");
            assert_eq!(fixture.writes(), applied, "{fault:?}");
        }
    }

    #[test]
    fn script_follows_order_of_calls() {
        let fixture = Fixture::new(Faults::scripted([Fault::None, Fault::NotApplied, Fault::RequestLost]));
        let store = &fixture.store;
        let settlement = Settlement { id: JobId::from_bytes([7; 16]), token: None, outcome: Outcome::Release };
        let first = store.settle(vec![settlement]);
        let second = store.claim(claim());
        let third = store.admin(AdminCommand::PauseQueue { queue: queue() });
        let fourth = store.tick(NonZeroUsize::MIN);
        assert!(block_on(fourth).is_ok());
        assert!(matches!(block_on(third), Err(StoreError::Unknown(_))));
        assert!(matches!(block_on(second), Err(StoreError::NotApplied(_))));
        assert!(block_on(first).is_ok());
        assert!(block_on(store.heartbeat(Vec::new())).is_ok());
        assert_eq!(fixture.writes(), 3);
    }

    #[test]
    fn poison_fails_all_writes_and_no_reads() {
        let fixture = Fixture::new(Faults::poison_after(2, false));
        assert!(fixture.submit().is_ok());
        assert!(fixture.submit().is_ok());
        let in_flight = fixture.submit().expect_err("the write fails");
        assert!(in_flight.may_have_applied(), "{in_flight}");
        for _ in 0..3 {
            let later = fixture.submit().expect_err("the store is poisoned");
            assert!(!later.may_have_applied(), "{later}");
            assert!(matches!(fixture.submit(), Err(StoreError::Poisoned)));
            assert!(matches!(block_on(fixture.store.tick(NonZeroUsize::MIN)), Err(StoreError::Poisoned)));
        }
        fixture.faulty.set(Faults::none());
        assert!(matches!(block_on(fixture.store.claim(claim())), Err(StoreError::Poisoned)), "no restart, no recovery");
        assert!(block_on(fixture.store.queues()).is_ok());
        assert_eq!(fixture.writes(), 2);
    }

    #[test]
    fn reads_fail_only_when_included() {
        let faults = || Faults::scripted([Fault::AnswerLost, Fault::None]);
        assert!(block_on(Fixture::new(faults()).store.queues()).is_ok());
        let fixture = Fixture::new(faults().including_reads());
        assert!(matches!(block_on(fixture.store.payloads(vec![Seq(1)])), Err(StoreError::NotApplied(_))));
        assert!(block_on(fixture.store.payloads(vec![Seq(1)])).is_ok());
        assert_eq!(fixture.store.now(), fixture.counter.inner().now(), "the clock never fails");
    }

    #[test]
    fn random_faults_are_seeded_and_of_all_three_kinds() {
        let run = |seed| {
            let fixture = Fixture::new(Faults::random(SeededRng::new(seed), 300));
            let outcomes: Vec<&str> =
                (0..1_000).map(|_| fixture.submit().map_or_else(|error| label(&error), |()| "completed")).collect();
            (fixture.writes(), outcomes)
        };
        let (applied, outcomes) = run(5);
        assert_eq!((applied, outcomes.clone()), run(5), "the same seed yields the same faults");
        assert_ne!(outcomes, run(6).1);
        let count = |label| outcomes.iter().filter(|outcome| **outcome == label).count();
        assert!((600..800).contains(&count("completed")));
        assert!(count("not applied") > 50 && count("unknown") > 100);
        let (completed, unknown) = (count("completed"), count("unknown"));
        assert!(applied > completed && applied < completed + unknown, "unknown covers both outcomes");
    }

    fn label(error: &StoreError) -> &'static str {
        if error.may_have_applied() { "unknown" } else { "not applied" }
    }
}
