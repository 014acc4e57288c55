//! The two traits: one changes jobs, the other reads them.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;

use longshore_core::ScheduleChange;
use longshore_core::directive::WorkerDirective;
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{JobId, QueueName, Seq, WorkerName, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::Workflow;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Claimed, Heartbeat, Queue, Settlement, StateCounts,
    SubmitRequest, Submitted, SystemKind, Ticked,
};

use crate::change_feed::ChangeFeed;
use crate::error::StoreError;
use crate::grant::{Grant, Park, SettledGrant};
use crate::health::StoreHealth;
use crate::metrics::StoreMetrics;
use crate::query::{JobQuery, MemberQuery, Page, QueuePosition, WorkflowPage, WorkflowQuery};
use crate::system::{SystemQuery, SystemRecord, SystemRefusal, SystemWrite, SystemWritten};
use crate::workers::{ReportedWorker, SeenWorker};

/// How long a directive takes at most to reach the other servers of a fleet.
pub const DIRECTIVE_LAG_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// How long a store reports events after a call of [`Store::watch_events`].
pub const EVENTS_WATCH: std::time::Duration = std::time::Duration::from_secs(60);

/// The result of a call. `Err` is a failure of the store; a refusal by the rules is inside the
/// `Ok`.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Changes jobs. A call returns when its change is durable.
///
/// Batches are vectors, and each verdict is at the index of its item:
///
/// ```
/// use std::num::NonZeroUsize;
///
/// use longshore_engine::{Settlement, SubmitRequest};
/// use longshore_store::{Store, StoreError};
///
/// /// Submits a batch, settles leases and processes due jobs.
/// async fn work(
///     store: &dyn Store,
///     jobs: SubmitRequest,
///     done: Vec<Settlement>,
/// ) -> Result<(), StoreError> {
///     // The outer error is a failure of the store, the inner one a refusal by the rules.
///     match store.submit(jobs).await? {
///         Ok(submitted) => println!("{} jobs are durable", submitted.len()),
///         Err(refusal) => println!("nothing was stored: {refusal:?}"),
///     }
///     for (index, verdict) in store.settle(done).await?.into_iter().enumerate() {
///         if let Err(refusal) = verdict {
///             println!("settlement {index} was refused: {refusal:?}");
///         }
///     }
///     let ticked = store.tick(NonZeroUsize::MIN).await?;
///     println!("next deadline: {:?}", ticked.next);
///     Ok(())
/// }
/// ```
pub trait Store: StoreReader {
    /// Stores a batch of jobs, all or nothing.
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>>;

    /// Leases at most `limit` ready jobs.
    ///
    /// A claim that finds no job is parked if `park` allows it. A parked claim gets exactly one
    /// response: jobs as soon as a commit makes some ready, or none when its wait ends. A claim
    /// whose future is dropped leases nothing. A grant that is dropped undelivered returns its
    /// leases.
    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>>;

    /// Claims jobs that are ready now, without waiting.
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Result<Vec<ClaimedJob>, Refusal>> {
        Box::pin(async move { Ok(self.claim_or_park(request, Park::No).await?.map(Grant::deliver)) })
    }

    /// Returns the number of parked claims.
    fn parked_claims(&self) -> usize;

    /// Holds or resumes grants. Under a hold no parked claim is served, and a claim that may park
    /// is parked at once. Virtual time advances under a hold.
    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()>;

    /// Settles leases. Returns one verdict for each, in order.
    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>>;

    /// Settles leases, then claims ready jobs, in one commit. The call never waits for jobs.
    ///
    /// A refused claim applies no settlement. If the caller is gone, or if the jobs are not
    /// delivered, the leases are returned and the settlements stand.
    fn settle_and_claim(
        &self,
        settlements: Vec<Settlement>,
        request: ClaimRequest,
    ) -> StoreFuture<'_, Result<SettledGrant, Refusal>>;

    /// Renews leases. Returns one verdict for each, in order.
    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>>;

    /// Sets the directive of a worker. From the return on, claims of a worker that does not `run`
    /// get no jobs at this server, and its parked claims end empty. Other servers follow within
    /// [`DIRECTIVE_LAG_MAX`]. The directive stays until the next one, over restarts.
    fn set_directive(&self, worker: WorkerName, directive: WorkerDirective) -> StoreFuture<'_, ()>;

    /// Reports what this server has seen of workers, for the other servers of a fleet. A store
    /// with one server needs no report.
    fn report_workers(&self, seen: Vec<SeenWorker>) -> StoreFuture<'_, ()>;

    /// Runs a command of an operator on a queue, a job or a workflow.
    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>>;

    /// Processes at most `budget` jobs that are due by the store's clock. Returns the next
    /// deadline.
    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked>;

    /// Writes system records, and submits jobs, in one commit.
    fn write_system(&self, write: SystemWrite) -> StoreFuture<'_, Result<SystemWritten, SystemRefusal>>;
    /// Reports the events of all servers of a fleet for [`EVENTS_WATCH`] from now on; a later call
    /// renews it. From the return on, every later commit of any server reaches the feeds of this
    /// store. Returns a mark: the feeds deliver [`Change::Mark`](crate::Change::Mark) with it after
    /// the events of all earlier commits.
    fn watch_events(&self) -> StoreFuture<'_, u64>;

    /// Publishes a change of a schedule for a queue to the event streams of all servers.
    fn announce_schedule(
        &self,
        name: Arc<str>,
        queue: QueueName,
        change: ScheduleChange,
        at: Timestamp,
    ) -> StoreFuture<'_, ()>;

    /// Subscribes to hints about changes. A lost hint delays a reaction and has no other effect.
    fn wakeups(&self) -> ChangeFeed;
}

/// Reads jobs, queues and workflows.
///
/// A read never waits for a write, and sees every change whose response was sent.
pub trait StoreReader: Debug + Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>>;

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>>;

    /// Lists jobs, newest first. The work for a page is bounded, so a page with a cursor may be
    /// empty.
    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page>;

    /// Counts the ready jobs before this position, without a scan.
    ///
    /// The count is exact if jobs are claimed in order of submission and none has inherited a
    /// priority. Otherwise it is an estimate from the jobs' own priorities and positions.
    fn count_ahead(&self, position: QueuePosition) -> StoreFuture<'_, u64>;

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>>;

    /// Returns the lifetime counters of the Ocypod dialect.
    fn ocypod_totals(&self) -> StoreFuture<'_, Totals>;

    /// Returns a workflow with the stored sums over its members. The members are not read.
    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>>;

    /// Lists workflows, newest first. A page with a cursor may be empty.
    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage>;

    /// Lists members of a workflow, oldest first. A page with a cursor may be empty.
    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page>;

    /// Lists all queues by name.
    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>>;

    /// Returns the directive of a worker from memory.
    fn directive(&self, worker: Option<&WorkerName>) -> WorkerDirective;

    /// Returns what other servers have reported about workers that were seen since this time.
    fn reported_workers(&self, since: Timestamp) -> StoreFuture<'_, Vec<ReportedWorker>>;

    /// Reads a range of system records, in order of their keys.
    fn system_records(&self, query: SystemQuery) -> StoreFuture<'_, Vec<SystemRecord>>;

    /// Returns a number that changes with every announced write of the kind, on any server.
    fn system_version(&self, kind: SystemKind) -> StoreFuture<'_, u64>;

    /// Reports whether submissions are accepted. `Err`: the store cannot be reached or is poisoned.
    fn health(&self) -> StoreFuture<'_, StoreHealth>;

    /// Returns measurements of the store's parts. A store without any returns the default.
    fn metrics(&self) -> StoreFuture<'_, StoreMetrics> {
        Box::pin(async { Ok(StoreMetrics::default()) })
    }
}

/// A reference to a job by its public id or its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobRef {
    Id(JobId),
    Seq(Seq),
}

/// A claimed job with its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedJob {
    pub claimed: Claimed,
    pub payload: Payload,
}

impl ClaimedJob {
    /// Returns what the job adds to the size of a claim.
    pub fn delivered_bytes(&self) -> usize {
        self.claimed.delivered_bytes(self.payload.bytes().len())
    }
}

#[derive(Clone, Debug)]
pub struct QueueStats {
    pub queue: Arc<Queue>,
    pub counts: StateCounts,
    /// When the longest waiting ready job became ready, regardless of priority.
    pub oldest_scheduled_at: Option<Timestamp>,
}
