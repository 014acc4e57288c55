//! A store that fails at will: for tests of whatever stands above a store.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::refusal::Refusal;
use longshore_core::rng::Rng;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::totals::Totals;
use longshore_core::workflow::Workflow;

use crate::change_feed::ChangeFeed;
use crate::error::StoreError;
use crate::grant::{Grant, Park};
use crate::health::StoreHealth;
use crate::metrics::StoreMetrics;
use crate::query::{JobQuery, MemberQuery, Page, QueuePosition, WorkflowPage, WorkflowQuery};
use crate::store::{ClaimedJob, JobRef, QueueStats, Store, StoreFuture, StoreReader};

/// What becomes of one call: whether it is applied, and whether the caller learns the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Applied and answered.
    None,
    /// Not applied, and the caller is told so.
    NotApplied,
    /// Applied, and the caller is told that this is not known.
    AnswerLost,
    /// Not applied, and the caller is told that this is not known.
    RequestLost,
    /// This call is answered [`StoreError::Unknown`], applied or not, and all later changes [`StoreError::Poisoned`].
    Poison { applied: bool },
}

/// Which call gets which fault, in the order in which calls are made. Looks are left alone unless told otherwise.
pub struct Faults {
    source: Source,
    reads: bool,
}

enum Source {
    /// And no faults after its end.
    Script(VecDeque<Fault>),
    Chance {
        rng: Box<dyn Rng + Send>,
        per_mille: u64,
    },
}

impl Faults {
    pub fn none() -> Self {
        Self::scripted([])
    }

    /// One for each call; when they are used up, all goes well.
    pub fn scripted(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { source: Source::Script(faults.into_iter().collect()), reads: false }
    }

    /// All goes well for this many calls, and the next one poisons the store.
    pub fn poison_after(calls: usize, applied: bool) -> Self {
        let well = std::iter::repeat_n(Fault::None, calls);
        Self::scripted(well.chain([Fault::Poison { applied }]))
    }

    /// Of a thousand calls about `per_mille` fail, in one of the three ways that leave the store alive.
    pub fn random(rng: impl Rng + Send + 'static, per_mille: u64) -> Self {
        Self { source: Source::Chance { rng: Box::new(rng), per_mille }, reads: false }
    }

    /// Looks fail too: they then take their turn with the others, and whatever the fault, nothing is answered.
    #[must_use]
    pub fn including_reads(self) -> Self {
        Self { reads: true, ..self }
    }

    fn next(&mut self) -> Fault {
        match &mut self.source {
            Source::Script(script) => script.pop_front().unwrap_or(Fault::None),
            Source::Chance { rng, per_mille } => {
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
            Source::Script(script) => write!(f, "Faults({script:?}"),
            Source::Chance { per_mille, .. } => write!(f, "Faults({per_mille} of 1000"),
        }?;
        f.write_str(if self.reads { ", looks too)" } else { ")" })
    }
}

/// The cause of an injected error.
#[derive(Debug)]
struct Injected;

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault that a test asked for")
    }
}

impl std::error::Error for Injected {}

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

    /// Another plan from here on; a poisoned store stays poisoned.
    pub fn set(&self, faults: Faults) {
        self.plan().faults = faults;
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault is drawn when the call is made, so that a script follows the order of calls and not of their ends.
    fn change<'a, T: Send + 'a>(
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

    fn look<'a, T: Send + 'a>(&'a self, call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T>) -> StoreFuture<'a, T> {
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
}

fn failed<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}

impl Store for FaultyStore {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        self.change(|store| store.submit(request))
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        self.change(|store| store.claim_or_park(request, park))
    }

    /// An answer that is lost has left the store: its leases are not given back.
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Result<Vec<ClaimedJob>, Refusal>> {
        self.change(|store| store.claim(request))
    }

    fn parked_claims(&self) -> usize {
        self.store.parked_claims()
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        self.store.hold_grants(hold)
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        self.change(|store| store.settle(settlements))
    }

    fn extend(&self, extensions: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.change(|store| store.extend(extensions))
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        self.change(|store| store.admin(command))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        self.change(move |store| store.tick(budget))
    }

    fn wakeups(&self) -> ChangeFeed {
        self.store.wakeups()
    }
}

impl StoreReader for FaultyStore {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        self.look(|store| store.health())
    }

    fn metrics(&self) -> StoreFuture<'_, StoreMetrics> {
        self.store.metrics()
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        self.look(|store| store.get(jobs))
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        self.look(|store| store.payloads(jobs))
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        self.look(|store| store.list(query))
    }

    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64> {
        self.look(|store| store.count_ahead(place))
    }

    fn totals(&self) -> StoreFuture<'_, Totals> {
        self.look(|store| store.totals())
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        self.look(|store| store.workflow(id))
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        self.look(|store| store.workflows(query))
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        self.look(|store| store.members(query))
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        self.look(|store| store.queue(name))
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        self.look(|store| store.queues())
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::rng::SeededRng;

    use super::*;
    use crate::stub::{Stub, claim, finish, pause, settlement, submission};

    fn broken(faults: Faults) -> (Arc<Stub>, FaultyStore) {
        let stub = Arc::new(Stub::default());
        (Arc::clone(&stub), FaultyStore::new(stub, faults))
    }

    #[test]
    fn a_call_is_applied_or_not_and_the_caller_learns_it_or_not() {
        for (fault, applied, may_have_applied) in [
            (Fault::None, 1, None),
            (Fault::NotApplied, 0, Some(false)),
            (Fault::AnswerLost, 1, Some(true)),
            (Fault::RequestLost, 0, Some(true)),
            (Fault::Poison { applied: false }, 0, Some(true)),
            (Fault::Poison { applied: true }, 1, Some(true)),
        ] {
            let (stub, store) = broken(Faults::scripted([fault]));
            let error = finish(store.submit(submission(1))).err();
            assert_eq!(error.map(|error| error.may_have_applied()), may_have_applied, "{fault:?}");
            assert_eq!(stub.changes(), applied, "{fault:?}");
        }
    }

    #[test]
    fn a_script_follows_the_order_of_calls_and_then_all_goes_well() {
        let (stub, store) = broken(Faults::scripted([Fault::None, Fault::NotApplied, Fault::RequestLost]));
        let first = store.settle(vec![settlement()]);
        let second = store.claim(claim(1));
        let third = store.admin(pause());
        let fourth = store.tick(NonZeroUsize::MIN);
        assert!(finish(fourth).is_ok());
        assert!(matches!(finish(third), Err(StoreError::Unknown(_))));
        assert!(matches!(finish(second), Err(StoreError::NotApplied(_))));
        assert!(finish(first).is_ok());
        assert!(finish(store.extend(Vec::new())).is_ok());
        assert_eq!(stub.changes(), 3);
    }

    #[test]
    fn poison_is_for_ever_and_leaves_looks_alone() {
        let (stub, store) = broken(Faults::poison_after(2, false));
        assert!(finish(store.submit(submission(1))).is_ok());
        assert!(finish(store.submit(submission(1))).is_ok());
        let under_way = finish(store.submit(submission(1))).expect_err("the disk fails");
        assert!(under_way.may_have_applied(), "{under_way}");
        for _ in 0..3 {
            let later = finish(store.submit(submission(1))).expect_err("the store is poisoned");
            assert!(!later.may_have_applied(), "{later}");
            assert!(matches!(finish(store.submit(submission(1))), Err(StoreError::Poisoned)));
            assert!(matches!(finish(store.tick(NonZeroUsize::MIN)), Err(StoreError::Poisoned)));
        }
        store.set(Faults::none());
        assert!(matches!(finish(store.claim(claim(1))), Err(StoreError::Poisoned)), "another plan is no restart");
        assert!(finish(store.queues()).is_ok());
        assert_eq!(stub.changes(), 2);
    }

    #[test]
    fn looks_fail_only_when_told_to() {
        let faults = || Faults::scripted([Fault::AnswerLost, Fault::None]);
        let (_, store) = broken(faults());
        assert!(finish(store.queues()).is_ok());
        let (_, store) = broken(faults().including_reads());
        assert!(matches!(finish(store.payloads(vec![Seq(1)])), Err(StoreError::NotApplied(_))));
        assert!(finish(store.payloads(vec![Seq(1)])).is_ok());
        assert_eq!(store.now(), Timestamp::from_millis(17), "the time is always known");
    }

    #[test]
    fn chance_is_seeded_and_finds_all_three_ways() {
        let run = |seed| {
            let (stub, store) = broken(Faults::random(SeededRng::new(seed), 300));
            let calls = (0..1_000).map(|_| finish(store.submit(submission(1))).map(drop));
            let told: Vec<&str> = calls.map(|call| call.map_or_else(|error| word(&error), |()| "answered")).collect();
            (stub.changes(), told)
        };
        let (applied, told) = run(5);
        assert_eq!((applied, told.clone()), run(5), "the same seed, the same faults");
        assert_ne!(told, run(6).1);
        let count = |word| told.iter().filter(|told| **told == word).count();
        assert!((600..800).contains(&count("answered")));
        assert!(count("not applied") > 50 && count("unknown") > 100);
        assert!(applied > count("answered") && applied < count("answered") + count("unknown"), "some were, some not");
    }

    fn word(error: &StoreError) -> &'static str {
        if error.may_have_applied() { "unknown" } else { "not applied" }
    }
}
