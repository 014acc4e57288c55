//! A store that tells somebody what is asked of another one, and how that went.

use std::fmt::{self, Debug};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::refusal::Refusal;
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
use crate::store::{JobRef, QueueStats, Store, StoreFuture, StoreReader};

/// What can be asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreOp {
    Submit,
    Claim,
    Settle,
    Extend,
    Admin,
    Tick,
    Get,
    Payloads,
    List,
    Ahead,
    Queue,
    Queues,
    Totals,
    Workflow,
    Workflows,
    Members,
}

impl StoreOp {
    pub const ALL: &'static [Self] = &[
        Self::Submit,
        Self::Claim,
        Self::Settle,
        Self::Extend,
        Self::Admin,
        Self::Tick,
        Self::Get,
        Self::Payloads,
        Self::List,
        Self::Ahead,
        Self::Queue,
        Self::Queues,
        Self::Totals,
        Self::Workflow,
        Self::Workflows,
        Self::Members,
    ];

    /// A label for metrics and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Claim => "claim",
            Self::Settle => "settle",
            Self::Extend => "extend",
            Self::Admin => "admin",
            Self::Tick => "tick",
            Self::Get => "get",
            Self::Payloads => "payloads",
            Self::List => "list",
            Self::Ahead => "ahead",
            Self::Queue => "queue",
            Self::Queues => "queues",
            Self::Totals => "totals",
            Self::Workflow => "workflow",
            Self::Workflows => "workflows",
            Self::Members => "members",
        }
    }

    /// Whether it may change something.
    pub fn writes(self) -> bool {
        match self {
            Self::Submit | Self::Claim | Self::Settle | Self::Extend | Self::Admin | Self::Tick => true,
            Self::Get | Self::Payloads | Self::List | Self::Ahead | Self::Queue | Self::Queues | Self::Totals => false,
            Self::Workflow | Self::Workflows | Self::Members => false,
        }
    }
}

/// One call, once it is over.
#[derive(Clone, Copy, Debug)]
pub struct StoreCall<'a> {
    pub verb: StoreOp,
    /// Members of a batch; where the store decides how many there are (claim, tick, list, queues), what it gave or did.
    pub items: usize,
    /// Verdicts of the rules that were "no". A refused submission refuses all of its batch.
    pub refused: usize,
    /// `None`: the caller stopped waiting; the store may have done it all the same.
    pub outcome: Option<Result<(), &'a StoreError>>,
    pub took: Duration,
    /// The call may have been parked: `took` says nothing about the store then.
    pub waits: bool,
}

/// Whoever keeps the figures. Called on the caller's path: it must not wait for anything.
pub trait Observer: Debug + Send + Sync + 'static {
    fn observe(&self, observation: &StoreCall<'_>);
}

/// Passes everything on, and reports every call that reaches the data; [`Inspect::now`] and [`Store::wakeups`] do not.
pub struct InstrumentedStore {
    store: Arc<dyn Store>,
    observer: Arc<dyn Observer>,
    /// A clock that only grows; where it starts does not matter.
    monotonic: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl InstrumentedStore {
    /// `monotonic`: [`crate::clock::monotonic`], or the time of a test.
    pub fn new(
        store: Arc<dyn Store>,
        observer: Arc<dyn Observer>,
        monotonic: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { store, observer, monotonic: Box::new(monotonic) }
    }

    /// `count` reads (items, refused) off an answer; `asked` is the number of items before there is one.
    fn watch<'a, T: 'a>(
        &'a self,
        verb: StoreOp,
        asked: usize,
        call: StoreFuture<'a, T>,
        count: impl FnOnce(&T) -> (usize, usize) + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move { self.begin(verb, asked).finish(call.await, count) })
    }

    fn begin(&self, verb: StoreOp, asked: usize) -> CallTimer<'_> {
        CallTimer { observed: self, verb, asked, started: (self.monotonic)(), waits: false, told: false }
    }
}

/// A call under way. Dropped before its end, it says that nobody waited for it.
struct CallTimer<'a> {
    observed: &'a InstrumentedStore,
    verb: StoreOp,
    asked: usize,
    started: Duration,
    waits: bool,
    told: bool,
}

impl CallTimer<'_> {
    fn finish<T>(
        mut self,
        answer: Result<T, StoreError>,
        count: impl FnOnce(&T) -> (usize, usize),
    ) -> Result<T, StoreError> {
        let (items, refused) = answer.as_ref().map_or((self.asked, 0), count);
        self.report(items, refused, Some(answer.as_ref().map(|_| ())));
        answer
    }

    fn report(&mut self, items: usize, refused: usize, outcome: Option<Result<(), &StoreError>>) {
        let took = (self.observed.monotonic)().saturating_sub(self.started);
        self.told = true;
        self.observed.observer.observe(&StoreCall {
            verb: self.verb,
            items,
            refused,
            outcome,
            took,
            waits: self.waits,
        });
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.report(self.asked, 0, None);
        }
    }
}

impl Debug for InstrumentedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("store", &self.store).field("observer", &self.observer).finish_non_exhaustive()
    }
}

fn verdicts<T>(verdicts: &[Result<T, Refusal>]) -> (usize, usize) {
    (verdicts.len(), verdicts.iter().filter(|verdict| verdict.is_err()).count())
}

impl Store for InstrumentedStore {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        let asked = request.batch.len() + usize::from(request.finally.is_some());
        let refused = move |answer: &Result<_, _>| (asked, if answer.is_ok() { 0 } else { asked });
        self.watch(StoreOp::Submit, asked, self.store.submit(request), refused)
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        let given = |answer: &Result<Grant, _>| answer.as_ref().map_or((0, 1), |grant| (grant.jobs().len(), 0));
        let waits = matches!(park, Park::Until(_));
        let call = self.store.claim_or_park(request, park);
        Box::pin(async move {
            let mut watch = self.begin(StoreOp::Claim, 0);
            watch.waits = waits;
            watch.finish(call.await, given)
        })
    }

    fn parked_claims(&self) -> usize {
        self.store.parked_claims()
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        self.store.hold_grants(hold)
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        self.watch(StoreOp::Settle, settlements.len(), self.store.settle(settlements), |answer| verdicts(answer))
    }

    fn extend(&self, extensions: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.watch(StoreOp::Extend, extensions.len(), self.store.extend(extensions), |answer| verdicts(answer))
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        self.watch(StoreOp::Admin, 1, self.store.admin(command), |answer| (1, usize::from(answer.is_err())))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        self.watch(StoreOp::Tick, 0, self.store.tick(budget), |ticked| (ticked.done, 0))
    }

    fn wakeups(&self) -> ChangeFeed {
        self.store.wakeups()
    }
}

impl StoreReader for InstrumentedStore {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        self.store.health()
    }

    fn metrics(&self) -> StoreFuture<'_, StoreMetrics> {
        self.store.metrics()
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        self.watch(StoreOp::Get, jobs.len(), self.store.get(jobs), |jobs| (jobs.len(), 0))
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        self.watch(StoreOp::Payloads, jobs.len(), self.store.payloads(jobs), |payloads| (payloads.len(), 0))
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        self.watch(StoreOp::List, 0, self.store.list(query), |page| (page.jobs.len(), 0))
    }

    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64> {
        self.watch(StoreOp::Ahead, 1, self.store.count_ahead(place), |_| (1, 0))
    }

    fn totals(&self) -> StoreFuture<'_, Totals> {
        self.watch(StoreOp::Totals, 0, self.store.totals(), |_| (1, 0))
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        self.watch(StoreOp::Workflow, 1, self.store.workflow(id), |_| (1, 0))
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        self.watch(StoreOp::Workflows, 0, self.store.workflows(query), |page| (page.workflows.len(), 0))
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        self.watch(StoreOp::Members, 0, self.store.members(query), |page| (page.jobs.len(), 0))
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        self.watch(StoreOp::Queue, 1, self.store.queue(name), |_| (1, 0))
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        self.watch(StoreOp::Queues, 0, self.store.queues(), |queues| (queues.len(), 0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::faulty::{Fault, Faults, FaultyStore};
    use crate::stub::{Stub, claim, finish, job, pause, settlement, submission};

    /// Verb, items, refused, outcome, milliseconds.
    type Note = (StoreOp, usize, usize, &'static str, u64);

    #[derive(Debug, Default)]
    struct Notes(Mutex<Vec<Note>>);

    impl Observer for Notes {
        fn observe(&self, observation: &StoreCall<'_>) {
            let outcome = match observation.outcome {
                Some(Ok(())) => "answered",
                Some(Err(error)) if error.may_have_applied() => "unknown",
                Some(Err(_)) => "not applied",
                None => "abandoned",
            };
            let StoreCall { verb, items, refused, took, .. } = *observation;
            let took = u64::try_from(took.as_millis()).unwrap();
            self.0.lock().unwrap().push((verb, items, refused, outcome, took));
        }
    }

    /// A clock that moves by three milliseconds whenever it is read.
    fn stepping() -> impl Fn() -> Duration + Send + Sync {
        let reads = AtomicU64::new(0);
        move || Duration::from_millis(3 * reads.fetch_add(1, Ordering::SeqCst))
    }

    fn observed(store: Arc<dyn Store>) -> (InstrumentedStore, Arc<Notes>) {
        let notes = Arc::new(Notes::default());
        (InstrumentedStore::new(store, Arc::<Notes>::clone(&notes), stepping()), notes)
    }

    fn last(notes: &Notes) -> Note {
        *notes.0.lock().unwrap().last().unwrap()
    }

    #[test]
    fn every_verb_is_reported_with_its_items_and_refusals() {
        let (store, notes) = observed(Arc::new(Stub::default()));
        assert!(finish(store.submit(submission(3))).unwrap().is_ok());
        assert_eq!(last(&notes), (StoreOp::Submit, 3, 0, "answered", 3));
        assert!(finish(store.submit(submission(0))).unwrap().is_err());
        assert_eq!(last(&notes), (StoreOp::Submit, 0, 0, "answered", 3));
        assert!(finish(store.submit(submission(7))).unwrap().is_err(), "the stub takes at most five");
        assert_eq!(last(&notes), (StoreOp::Submit, 7, 7, "answered", 3));
        assert_eq!(finish(store.claim(claim(2))).unwrap().unwrap().len(), 0);
        assert_eq!(last(&notes), (StoreOp::Claim, 0, 0, "answered", 3));
        assert!(finish(store.claim(claim(0))).unwrap().is_err());
        assert_eq!(last(&notes), (StoreOp::Claim, 0, 1, "answered", 3));
        let verdicts = finish(store.settle(vec![settlement(), settlement()])).unwrap();
        assert!(verdicts[0].is_ok() && verdicts[1].is_err());
        assert_eq!(last(&notes), (StoreOp::Settle, 2, 1, "answered", 3));
        assert!(finish(store.extend(Vec::new())).unwrap().is_empty());
        assert_eq!(last(&notes), (StoreOp::Extend, 0, 0, "answered", 3));
        assert!(finish(store.admin(pause())).unwrap().is_err());
        assert_eq!(last(&notes), (StoreOp::Admin, 1, 1, "answered", 3));
        assert_eq!(finish(store.tick(NonZeroUsize::MIN)).unwrap().done, 1);
        assert_eq!(last(&notes), (StoreOp::Tick, 1, 0, "answered", 3));
        let seen = notes.0.lock().unwrap().len();
        assert_eq!((store.now(), seen), (Timestamp::from_millis(17), 9), "asking for the time is no call");
    }

    #[test]
    fn looks_are_reported_too() {
        let (store, notes) = observed(Arc::new(Stub::default()));
        assert_eq!(finish(store.get(vec![JobRef::Seq(Seq(1)), job()])).unwrap().len(), 2);
        assert_eq!(last(&notes), (StoreOp::Get, 2, 0, "answered", 3));
        assert_eq!(finish(store.payloads(vec![Seq(1)])).unwrap().len(), 1);
        assert_eq!(last(&notes), (StoreOp::Payloads, 1, 0, "answered", 3));
        let query = JobQuery { filter: crate::JobFilter::default(), limit: 10, before: None };
        assert!(finish(store.list(query)).unwrap().next.is_none());
        assert_eq!(last(&notes), (StoreOp::List, 0, 0, "answered", 3));
        let place = QueuePosition { queue: QueueName::new("q").unwrap(), position: 1, priority: None };
        assert_eq!(finish(store.count_ahead(place)).unwrap(), 0);
        assert_eq!(last(&notes), (StoreOp::Ahead, 1, 0, "answered", 3));
        assert!(finish(store.queue(QueueName::new("q").unwrap())).unwrap().is_none());
        assert_eq!(last(&notes), (StoreOp::Queue, 1, 0, "answered", 3));
        let workflow = WorkflowId::from_bytes([7; 16]);
        assert!(finish(store.workflow(workflow)).unwrap().is_none());
        assert_eq!(last(&notes), (StoreOp::Workflow, 1, 0, "answered", 3));
        let query = WorkflowQuery { state: None, limit: 10, before: None };
        assert!(finish(store.workflows(query)).unwrap().next.is_none());
        assert_eq!(last(&notes), (StoreOp::Workflows, 0, 0, "answered", 3));
        let query = MemberQuery { workflow, limit: 10, after: Seq(0) };
        assert!(finish(store.members(query)).unwrap().next.is_none());
        assert_eq!(last(&notes), (StoreOp::Members, 0, 0, "answered", 3));
        assert!(finish(store.queues()).unwrap().is_empty());
        assert_eq!(last(&notes), (StoreOp::Queues, 0, 0, "answered", 3));
    }

    #[test]
    fn errors_of_the_store_are_told_apart() {
        let faults = Faults::scripted([Fault::NotApplied, Fault::AnswerLost]);
        let (store, notes) = observed(Arc::new(FaultyStore::new(Arc::new(Stub::default()), faults)));
        assert!(finish(store.submit(submission(2))).is_err());
        assert_eq!(last(&notes), (StoreOp::Submit, 2, 0, "not applied", 3));
        assert!(finish(store.settle(vec![settlement()])).is_err());
        assert_eq!(last(&notes), (StoreOp::Settle, 1, 0, "unknown", 3));
    }

    /// A client that hangs up is no reason to lose count.
    #[test]
    fn a_call_that_nobody_waits_for_is_reported_as_abandoned() {
        let (store, notes) = observed(Arc::new(Stub::hanging()));
        let mut call = store.submit(submission(2));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
        drop(call);
        assert_eq!(last(&notes), (StoreOp::Submit, 2, 0, "abandoned", 3));
        drop(store.submit(submission(1)));
        assert_eq!(notes.0.lock().unwrap().len(), 1, "what never began is no call");
    }

    #[test]
    fn each_verb_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = StoreOp::ALL.iter().map(|verb| verb.as_str()).collect();
        assert_eq!(words.len(), StoreOp::ALL.len());
        assert_eq!(StoreOp::ALL.iter().filter(|verb| verb.writes()).count(), 6);
    }
}
