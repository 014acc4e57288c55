//! The two traits: what changes jobs, and what looks at them.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;

use longshore_core::engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Claimed, Heartbeat, Queue, Settlement, StateCounts,
    SubmitRequest, Submitted, Ticked,
};
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
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

/// `Err` is a failure of the store; what the rules refuse is in the `Ok`.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Changes. Every answer means: durable.
pub trait Store: StoreReader {
    /// All of the batch is stored, or nothing.
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>>;

    /// Takes jobs from the line under new leases; may give fewer than asked, never more. A claim that finds nothing is parked if `park` allows it. It is
    /// then answered exactly once: with jobs as soon as a commit makes some ready, or empty when its wait ends. A claim whose future is
    /// dropped leases nothing; a grant that is dropped undelivered gives its leases back.
    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>>;

    /// Claims what is ready now.
    fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Result<Vec<ClaimedJob>, Refusal>> {
        Box::pin(async move { Ok(self.claim_or_park(request, Park::No).await?.map(Grant::deliver)) })
    }

    /// Claims that wait at this moment.
    fn parked_claims(&self) -> usize;

    /// While held, no parked claim is granted anything, and a claim that may park does so unserved. Virtual time advances under a hold.
    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()>;

    /// Ends leases; one verdict for each, in order.
    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>>;

    /// Heartbeats; one verdict for each, in order.
    fn extend(&self, extensions: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>>;

    /// What people do to queues and jobs.
    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>>;

    /// Does what is due by the store's clock, at most `budget` jobs of it, and says when to come back.
    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked>;

    /// What has changed since; a hint, losing one costs time and nothing else.
    fn wakeups(&self) -> ChangeFeed;
}

/// Looks. Never waits behind a write, and sees everything that was answered.
pub trait StoreReader: Debug + Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>>;

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>>;

    /// Newest first. A page may be short, or empty, while there is more: the work for one page is bounded.
    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page>;

    /// How many jobs stand in line before this place. Exact where a line is in order of submission and nobody has inherited a priority;
    /// elsewhere an estimate by the jobs' own priorities and numbers. Never a scan.
    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64>;

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>>;

    /// What has become of the jobs of the Ocypod dialect since the store was made.
    fn totals(&self) -> StoreFuture<'_, Totals>;

    /// With the sums over its members; never by looking at them.
    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>>;

    /// Newest first. A page may be short, or empty, while there is more.
    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage>;

    /// Oldest first. A page may be short, or empty, while there is more.
    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page>;

    /// All queues by name.
    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>>;

    /// Whether new jobs are taken. `Err`: the store cannot even say that.
    fn health(&self) -> StoreFuture<'_, StoreHealth>;

    /// Returns measurements of the store's parts. A store without any returns the default.
    fn metrics(&self) -> StoreFuture<'_, StoreMetrics> {
        Box::pin(async { Ok(StoreMetrics::default()) })
    }
}

/// The two names of a job.
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

#[derive(Clone, Debug)]
pub struct QueueStats {
    pub queue: Arc<Queue>,
    pub counts: StateCounts,
    /// When the job that has stood longest in line came into it, whatever its priority.
    pub oldest_scheduled_at: Option<Timestamp>,
}
