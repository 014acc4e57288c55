//! A store layer that reports every call to an observer.

use std::fmt::{self, Debug};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::workflow::Workflow;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted, Ticked,
};

use crate::error::StoreError;
use crate::grant::{Grant, Park, SettledGrant};
use crate::layer::StoreLayer;
use crate::query::{JobQuery, MemberQuery, Page, QueuePosition, WorkflowPage, WorkflowQuery};
use crate::store::{JobRef, QueueStats, Store, StoreFuture};

/// The operations of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreOp {
    Submit,
    Claim,
    Settle,
    SettleAndClaim,
    Heartbeat,
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
        Self::SettleAndClaim,
        Self::Heartbeat,
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

    /// Returns the label in metrics and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Claim => "claim",
            Self::Settle => "settle",
            Self::SettleAndClaim => "settle_and_claim",
            Self::Heartbeat => "extend",
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

    /// Whether the operation may change jobs.
    pub fn writes(self) -> bool {
        match self {
            Self::Submit | Self::Claim | Self::Settle | Self::SettleAndClaim => true,
            Self::Heartbeat | Self::Admin | Self::Tick => true,
            Self::Get | Self::Payloads | Self::List | Self::Ahead | Self::Queue | Self::Queues | Self::Totals => false,
            Self::Workflow | Self::Workflows | Self::Members => false,
        }
    }
}

/// A finished call.
#[derive(Clone, Copy, Debug)]
pub struct StoreCall<'a> {
    pub operation: StoreOp,
    /// Items of the batch. For claim, tick and listings: the number of items in the result.
    pub items: usize,
    /// Items that the rules refused. A refused submission refuses its whole batch.
    pub refused: usize,
    /// `None`: the caller stopped waiting. The store may have applied the call.
    pub outcome: Option<Result<(), &'a StoreError>>,
    pub took: Duration,
    /// The call may have been parked, so `took` does not measure the store.
    pub waits: bool,
    /// What [`Observer::begin`] returned.
    pub load: u32,
}

/// Collects measurements. It is called on the path of the request and must not block.
pub trait Observer: Debug + Send + Sync + 'static {
    /// A call begins that is not parked. Returns its share of the load, for [`StoreCall::load`].
    fn begin(&self, _operation: StoreOp, _items: usize) -> u32 {
        0
    }

    fn observe(&self, call: &StoreCall<'_>);
}

/// Forwards every call and reports those that reach the data. `now`, `health`, `wakeups` and the
/// administration of parked claims are not reported.
pub struct InstrumentedStore {
    store: Arc<dyn Store>,
    observer: Arc<dyn Observer>,
    /// A monotonic clock with any origin.
    monotonic: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl InstrumentedStore {
    /// `monotonic` is [`crate::clock::monotonic`], or the clock of a test.
    pub fn new(
        store: Arc<dyn Store>,
        observer: Arc<dyn Observer>,
        monotonic: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { store, observer, monotonic: Box::new(monotonic) }
    }

    /// Times a call. `count` returns (items, refused) of a result; `requested` is the number of
    /// items until there is one.
    fn measure<'a, T: 'a>(
        &'a self,
        operation: StoreOp,
        requested: usize,
        call: StoreFuture<'a, T>,
        count: impl FnOnce(&T) -> (usize, usize) + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move { self.start(operation, requested, false).finish(call.await, count) })
    }

    fn start(&self, operation: StoreOp, requested: usize, waits: bool) -> CallTimer<'_> {
        let load = if waits { 0 } else { self.observer.begin(operation, requested) };
        CallTimer { store: self, operation, requested, started: (self.monotonic)(), waits, load, reported: false }
    }
}

/// A call in flight. If it is dropped before its end, it reports an abandoned call.
struct CallTimer<'a> {
    store: &'a InstrumentedStore,
    operation: StoreOp,
    requested: usize,
    started: Duration,
    waits: bool,
    load: u32,
    reported: bool,
}

impl CallTimer<'_> {
    fn finish<T>(
        mut self,
        result: Result<T, StoreError>,
        count: impl FnOnce(&T) -> (usize, usize),
    ) -> Result<T, StoreError> {
        let (items, refused) = result.as_ref().map_or((self.requested, 0), count);
        self.report(items, refused, Some(result.as_ref().map(|_| ())));
        result
    }

    fn report(&mut self, items: usize, refused: usize, outcome: Option<Result<(), &StoreError>>) {
        let took = (self.store.monotonic)().saturating_sub(self.started);
        self.reported = true;
        self.store.observer.observe(&StoreCall {
            operation: self.operation,
            items,
            refused,
            outcome,
            took,
            waits: self.waits,
            load: self.load,
        });
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        if !self.reported {
            self.report(self.requested, 0, None);
        }
    }
}

impl Debug for InstrumentedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstrumentedStore")
            .field("store", &self.store)
            .field("observer", &self.observer)
            .finish_non_exhaustive()
    }
}

/// Returns (items, refused) of a list of verdicts.
fn count<T>(verdicts: &[Result<T, Refusal>]) -> (usize, usize) {
    (verdicts.len(), verdicts.iter().filter(|verdict| verdict.is_err()).count())
}

impl StoreLayer for InstrumentedStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        let requested = request.batch.len() + usize::from(request.finally.is_some());
        let count = move |result: &Result<_, _>| (requested, if result.is_ok() { 0 } else { requested });
        self.measure(StoreOp::Submit, requested, self.store.submit(request), count)
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        let count = |result: &Result<Grant, _>| result.as_ref().map_or((0, 1), |grant| (grant.jobs().len(), 0));
        let waits = matches!(park, Park::Until(_));
        let call = self.store.claim_or_park(request, park);
        Box::pin(async move {
            let timer = self.start(StoreOp::Claim, 0, waits);
            timer.finish(call.await, count)
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        self.measure(StoreOp::Settle, settlements.len(), self.store.settle(settlements), |verdicts| count(verdicts))
    }

    fn settle_and_claim(
        &self,
        settlements: Vec<Settlement>,
        request: ClaimRequest,
    ) -> StoreFuture<'_, Result<SettledGrant, Refusal>> {
        let requested = settlements.len();
        let items = move |result: &Result<SettledGrant, _>| match result {
            Ok(settled) => {
                let (verdicts, refused) = count(&settled.verdicts);
                (verdicts + settled.grant.jobs().len(), refused)
            }
            Err(_) => (requested, requested.max(1)),
        };
        let call = self.store.settle_and_claim(settlements, request);
        self.measure(StoreOp::SettleAndClaim, requested, call, items)
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.measure(StoreOp::Heartbeat, heartbeats.len(), self.store.heartbeat(heartbeats), |verdicts| count(verdicts))
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        self.measure(StoreOp::Admin, 1, self.store.admin(command), |result| (1, usize::from(result.is_err())))
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        self.measure(StoreOp::Tick, 0, self.store.tick(budget), |ticked| (ticked.done, 0))
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        self.measure(StoreOp::Get, jobs.len(), self.store.get(jobs), |jobs| (jobs.len(), 0))
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        self.measure(StoreOp::Payloads, jobs.len(), self.store.payloads(jobs), |payloads| (payloads.len(), 0))
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        self.measure(StoreOp::List, 0, self.store.list(query), |page| (page.jobs.len(), 0))
    }

    fn count_ahead(&self, position: QueuePosition) -> StoreFuture<'_, u64> {
        self.measure(StoreOp::Ahead, 1, self.store.count_ahead(position), |_| (1, 0))
    }

    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        self.measure(StoreOp::Totals, 0, self.store.ocypod_totals(), |_| (1, 0))
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        self.measure(StoreOp::Workflow, 1, self.store.workflow(id), |_| (1, 0))
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        self.measure(StoreOp::Workflows, 0, self.store.workflows(query), |page| (page.workflows.len(), 0))
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        self.measure(StoreOp::Members, 0, self.store.members(query), |page| (page.jobs.len(), 0))
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        self.measure(StoreOp::Queue, 1, self.store.queue(name), |_| (1, 0))
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        self.measure(StoreOp::Queues, 0, self.store.queues(), |queues| (queues.len(), 0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use longshore_core::time::Timestamp;

    use crate::error_message::ErrorMessage;
    use crate::stub::{Stub, claim, finish, job, pause, settlement, submission};

    /// Operation, items, refused, outcome, milliseconds.
    type Record = (StoreOp, usize, usize, &'static str, u64);

    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<Record>>);

    impl Observer for Recorder {
        fn observe(&self, call: &StoreCall<'_>) {
            let outcome = match call.outcome {
                Some(Ok(())) => "completed",
                Some(Err(error)) if error.may_have_applied() => "unknown",
                Some(Err(_)) => "not applied",
                None => "abandoned",
            };
            let StoreCall { operation, items, refused, took, .. } = *call;
            let took = u64::try_from(took.as_millis()).unwrap();
            self.0.lock().unwrap().push((operation, items, refused, outcome, took));
        }
    }

    /// Returns a clock that advances by three milliseconds per reading.
    fn stepping_clock() -> impl Fn() -> Duration + Send + Sync {
        let reads = AtomicU64::new(0);
        move || Duration::from_millis(3 * reads.fetch_add(1, Ordering::SeqCst))
    }

    fn instrument(store: Stub) -> (Arc<dyn Store>, Arc<Recorder>) {
        let recorder = Arc::new(Recorder::default());
        let observer = Arc::<Recorder>::clone(&recorder);
        (Arc::new(InstrumentedStore::new(Arc::new(store), observer, stepping_clock())), recorder)
    }

    fn last(recorder: &Recorder) -> Record {
        *recorder.0.lock().unwrap().last().unwrap()
    }

    #[test]
    fn writes_are_reported_with_items_and_refusals() {
        let (store, recorder) = instrument(Stub::default());
        assert!(finish(store.submit(submission(3))).unwrap().is_ok());
        assert_eq!(last(&recorder), (StoreOp::Submit, 3, 0, "completed", 3));
        assert!(finish(store.submit(submission(0))).unwrap().is_err());
        assert_eq!(last(&recorder), (StoreOp::Submit, 0, 0, "completed", 3));
        assert!(finish(store.submit(submission(7))).unwrap().is_err(), "the stub accepts at most five");
        assert_eq!(last(&recorder), (StoreOp::Submit, 7, 7, "completed", 3));
        assert_eq!(finish(store.claim(claim(2))).unwrap().unwrap().len(), 0);
        assert_eq!(last(&recorder), (StoreOp::Claim, 0, 0, "completed", 3));
        assert!(finish(store.claim(claim(0))).unwrap().is_err());
        assert_eq!(last(&recorder), (StoreOp::Claim, 0, 1, "completed", 3));
        let verdicts = finish(store.settle(vec![settlement(), settlement()])).unwrap();
        assert!(verdicts[0].is_ok() && verdicts[1].is_err());
        assert_eq!(last(&recorder), (StoreOp::Settle, 2, 1, "completed", 3));
        let settled = finish(store.settle_and_claim(vec![settlement(), settlement()], claim(1))).unwrap().unwrap();
        assert_eq!(settled.verdicts.len(), 2);
        assert_eq!(last(&recorder), (StoreOp::SettleAndClaim, 2, 1, "completed", 3));
        assert!(finish(store.settle_and_claim(vec![settlement()], claim(0))).unwrap().is_err());
        assert_eq!(last(&recorder), (StoreOp::SettleAndClaim, 1, 1, "completed", 3));
        assert!(finish(store.heartbeat(Vec::new())).unwrap().is_empty());
        assert_eq!(last(&recorder), (StoreOp::Heartbeat, 0, 0, "completed", 3));
        assert!(finish(store.admin(pause())).unwrap().is_err());
        assert_eq!(last(&recorder), (StoreOp::Admin, 1, 1, "completed", 3));
        assert_eq!(finish(store.tick(NonZeroUsize::MIN)).unwrap().done, 1);
        assert_eq!(last(&recorder), (StoreOp::Tick, 1, 0, "completed", 3));
        let calls = recorder.0.lock().unwrap().len();
        assert_eq!((store.now(), calls), (Timestamp::from_millis(17), 11), "now is not reported");
    }

    #[test]
    fn reads_are_reported() {
        let (store, recorder) = instrument(Stub::default());
        assert_eq!(finish(store.get(vec![JobRef::Seq(Seq(1)), job()])).unwrap().len(), 2);
        assert_eq!(last(&recorder), (StoreOp::Get, 2, 0, "completed", 3));
        assert_eq!(finish(store.payloads(vec![Seq(1)])).unwrap().len(), 1);
        assert_eq!(last(&recorder), (StoreOp::Payloads, 1, 0, "completed", 3));
        let query = JobQuery { filter: crate::JobFilter::default(), limit: 10, before: None };
        assert!(finish(store.list(query)).unwrap().next.is_none());
        assert_eq!(last(&recorder), (StoreOp::List, 0, 0, "completed", 3));
        let position = QueuePosition { queue: QueueName::new("q").unwrap(), position: 1, priority: None };
        assert_eq!(finish(store.count_ahead(position)).unwrap(), 0);
        assert_eq!(last(&recorder), (StoreOp::Ahead, 1, 0, "completed", 3));
        assert!(finish(store.queue(QueueName::new("q").unwrap())).unwrap().is_none());
        assert_eq!(last(&recorder), (StoreOp::Queue, 1, 0, "completed", 3));
        let workflow = WorkflowId::from_bytes([7; 16]);
        assert!(finish(store.workflow(workflow)).unwrap().is_none());
        assert_eq!(last(&recorder), (StoreOp::Workflow, 1, 0, "completed", 3));
        let query = WorkflowQuery { state: None, limit: 10, before: None };
        assert!(finish(store.workflows(query)).unwrap().next.is_none());
        assert_eq!(last(&recorder), (StoreOp::Workflows, 0, 0, "completed", 3));
        let query = MemberQuery { workflow, limit: 10, after: Seq(0) };
        assert!(finish(store.members(query)).unwrap().next.is_none());
        assert_eq!(last(&recorder), (StoreOp::Members, 0, 0, "completed", 3));
        assert!(finish(store.queues()).unwrap().is_empty());
        assert_eq!(last(&recorder), (StoreOp::Queues, 0, 0, "completed", 3));
    }

    #[test]
    fn outcomes_distinguish_unknown_from_not_applied() {
        let fault = || ErrorMessage::new("injected");
        let stub = Stub::failing([StoreError::not_applied(fault()), StoreError::unknown(fault())]);
        let (store, recorder) = instrument(stub);
        assert!(finish(store.submit(submission(2))).is_err());
        assert_eq!(last(&recorder), (StoreOp::Submit, 2, 0, "not applied", 3));
        assert!(finish(store.settle(vec![settlement()])).is_err());
        assert_eq!(last(&recorder), (StoreOp::Settle, 1, 0, "unknown", 3));
    }

    /// A client that disconnects does not distort the counters.
    #[test]
    fn dropped_call_is_reported_as_abandoned() {
        let (store, recorder) = instrument(Stub::hanging());
        let mut call = store.submit(submission(2));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
        drop(call);
        assert_eq!(last(&recorder), (StoreOp::Submit, 2, 0, "abandoned", 3));
        drop(store.submit(submission(1)));
        assert_eq!(recorder.0.lock().unwrap().len(), 1, "a call that was never polled is not reported");
    }

    #[test]
    fn labels_are_unique() {
        let labels: std::collections::BTreeSet<_> = StoreOp::ALL.iter().map(|op| op.as_str()).collect();
        assert_eq!(labels.len(), StoreOp::ALL.len());
        assert!(
            StoreOp::ALL.iter().enumerate().all(|(index, op)| *op as usize == index),
            "observers index by operation"
        );
        assert_eq!(StoreOp::ALL.iter().filter(|op| op.writes()).count(), 7);
    }
}
