//! Two nodes serve requests at random, so that their caches are often stale. The conformance suite
//! must pass all the same.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_core::directive::WorkerDirective;
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq, WorkerName, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::Workflow;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted,
    SystemKind, Ticked,
};
use longshore_store::query::{JobQuery, MemberQuery, Page, QueuePosition, WorkflowPage, WorkflowQuery};
use longshore_store::{
    ChangeFeed, Clock, Grant, JobRef, Park, QueueStats, ReportedWorker, SeenWorker, SettledGrant, Store, StoreFuture,
    StoreHealth, StoreReader, SystemQuery, SystemRecord, SystemRefusal, SystemWrite, SystemWritten, VirtualClock,
};
use longshore_store_postgres::{Connections, PostgresOptions, PostgresStore};
use longshore_testkit::conformance::{self, StoreFixture};

#[derive(Debug)]
struct TwoNodes {
    nodes: [PostgresStore; 2],
    /// State of the random generator, always with the same seed.
    rng: AtomicU64,
}

impl TwoNodes {
    fn open(schema: &common::Schema, clock: &Arc<VirtualClock>) -> Self {
        static SHARED: std::sync::OnceLock<Connections> = std::sync::OnceLock::new();
        let connections =
            SHARED.get_or_init(|| Connections::new(&PostgresOptions::new(&*schema.url), 24).expect("an address"));
        let node = || {
            let options = PostgresOptions {
                schema: schema.name.clone(),
                clock: Some(Arc::<VirtualClock>::clone(clock) as Arc<dyn Clock>),
                auto_migrate: false,
                writers: 0,
                readers: 1,
                retention_slack: longshore_core::Duration::ZERO,
                runtime: Some(common::runtime().handle().clone()),
                connections: Some(connections.clone()),
                ..PostgresOptions::new(&*schema.url)
            };
            PostgresStore::open(options).expect("the store opens")
        };
        Self { nodes: [node(), node()], rng: AtomicU64::new(1) }
    }

    fn one(&self) -> &PostgresStore {
        let next = |rng: u64| Some(rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        let rng = self.rng.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).expect("always a number");
        // Often the same node twice in a row, so that its cache is valid now and then.
        let [first, second] = &self.nodes;
        if (rng >> 33).is_multiple_of(3) { second } else { first }
    }
}

impl Drop for TwoNodes {
    fn drop(&mut self) {
        for node in &self.nodes {
            let fast_path = node.fast_path();
            HITS.fetch_add(fast_path.hits, Ordering::Relaxed);
            MISSES.fetch_add(fast_path.misses, Ordering::Relaxed);
        }
    }
}

static HITS: AtomicU64 = AtomicU64::new(0);
static MISSES: AtomicU64 = AtomicU64::new(0);

impl Store for TwoNodes {
    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        self.one().submit(request)
    }

    fn claim_or_park(&self, request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        self.one().claim_or_park(request, park)
    }

    fn parked_claims(&self) -> usize {
        self.nodes.iter().map(|node| node.parked_claims()).sum()
    }

    fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            for node in &self.nodes {
                node.hold_grants(hold).await?;
            }
            Ok(())
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        self.one().settle(settlements)
    }

    fn settle_and_claim(
        &self,
        settlements: Vec<Settlement>,
        request: ClaimRequest,
    ) -> StoreFuture<'_, Result<SettledGrant, Refusal>> {
        self.one().settle_and_claim(settlements, request)
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        self.one().heartbeat(heartbeats)
    }

    /// On both nodes: in virtual time there is no polling.
    fn set_directive(&self, worker: WorkerName, directive: WorkerDirective) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            for node in &self.nodes {
                node.set_directive(worker.clone(), directive).await?;
            }
            Ok(())
        })
    }

    fn report_workers(&self, seen: Vec<SeenWorker>) -> StoreFuture<'_, ()> {
        self.one().report_workers(seen)
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        self.one().admin(command)
    }

    fn tick(&self, budget: NonZeroUsize) -> StoreFuture<'_, Ticked> {
        self.one().tick(budget)
    }

    fn watch_events(&self) -> StoreFuture<'_, u64> {
        self.one().watch_events()
    }

    fn announce_schedule(
        &self,
        name: Arc<str>,
        queue: QueueName,
        change: longshore_core::ScheduleChange,
        at: Timestamp,
    ) -> StoreFuture<'_, ()> {
        self.one().announce_schedule(name, queue, change, at)
    }

    fn write_system(&self, write: SystemWrite) -> StoreFuture<'_, Result<SystemWritten, SystemRefusal>> {
        self.one().write_system(write)
    }

    fn wakeups(&self) -> ChangeFeed {
        self.one().wakeups()
    }
}

impl StoreReader for TwoNodes {
    fn now(&self) -> Timestamp {
        self.one().now()
    }

    fn directive(&self, worker: Option<&WorkerName>) -> WorkerDirective {
        self.one().directive(worker)
    }

    fn reported_workers(&self, since: Timestamp) -> StoreFuture<'_, Vec<ReportedWorker>> {
        self.one().reported_workers(since)
    }

    fn system_records(&self, query: SystemQuery) -> StoreFuture<'_, Vec<SystemRecord>> {
        self.one().system_records(query)
    }

    fn system_version(&self, kind: SystemKind) -> StoreFuture<'_, u64> {
        self.one().system_version(kind)
    }

    fn health(&self) -> StoreFuture<'_, StoreHealth> {
        self.one().health()
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        self.one().get(jobs)
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        self.one().payloads(jobs)
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        self.one().list(query)
    }

    fn count_ahead(&self, place: QueuePosition) -> StoreFuture<'_, u64> {
        self.one().count_ahead(place)
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        self.one().queue(name)
    }

    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        self.one().ocypod_totals()
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        self.one().workflow(id)
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        self.one().workflows(query)
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        self.one().members(query)
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        self.one().queues()
    }
}

fn fixture() -> StoreFixture {
    let (clock, schema) = (conformance::clock(), Arc::new(common::Schema::take()));
    StoreFixture::new(Arc::new(TwoNodes::open(&schema, &clock)), clock).keeping(schema)
}

/// The scenarios must exercise both paths.
fn assert_both_paths_were_used() {
    let (hits, misses) = (HITS.load(Ordering::Relaxed), MISSES.load(Ordering::Relaxed));
    assert!(hits > 100 && misses > 100, "{hits} fast-path hits, {misses} misses");
}

#[test]
fn scenarios_pass_with_stale_caches() {
    conformance::scenarios(&fixture);
    assert_both_paths_were_used();
}

#[test]
fn random_histories_pass_with_stale_caches() {
    conformance::histories(&fixture, 2_000_000..2_000_010);
    assert_both_paths_were_used();
}

/// Several nodes start at the same time on an empty database.
#[test]
fn nodes_start_together() {
    common::runtime().block_on(async {
        for round in 0..3 {
            let (url, schema) = (common::shared_url(), format!("together_{}_{round}", std::process::id()));
            let nodes = (0..4).map(|_| common::load::open(&url, &schema));
            let nodes = futures_util::future::join_all(nodes).await;
            assert_eq!(nodes.len(), 4);
        }
    });
}
