//! Two nodes take turns at random, so that what each believes about runs, lines and numbers is often wrong: nobody may notice.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_store::{Clock, Store, StoreFuture, StoreLayer, VirtualClock};
use longshore_store_postgres::{Connections, Options, PostgresStore};
use longshore_testkit::conformance::{self, StoreFixture};

#[derive(Debug)]
struct TwoNodes {
    nodes: [PostgresStore; 2],
    /// Always the same sequence.
    rng: AtomicU64,
}

impl TwoNodes {
    fn open(schema: &common::Schema, clock: &Arc<VirtualClock>) -> Self {
        static SHARED: std::sync::OnceLock<Connections> = std::sync::OnceLock::new();
        let connections = SHARED.get_or_init(|| Connections::new(&Options::new(&*schema.url), 24).expect("an address"));
        let node = || {
            let options = Options {
                schema: schema.name.clone(),
                clock: Some(Arc::<VirtualClock>::clone(clock) as Arc<dyn Clock>),
                auto_migrate: false,
                writers: 0,
                readers: 1,
                retention_slack: longshore_core::Duration::ZERO,
                runtime: Some(common::runtime().handle().clone()),
                connections: Some(connections.clone()),
                ..Options::new(&*schema.url)
            };
            PostgresStore::open(options).expect("the store opens")
        };
        Self { nodes: [node(), node()], rng: AtomicU64::new(1) }
    }

    fn one(&self) -> &PostgresStore {
        let next = |rng: u64| Some(rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        let rng = self.rng.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).expect("always a number");
        // Longer turns as well, so that beliefs are right now and then.
        let [first, second] = &self.nodes;
        if (rng >> 33).is_multiple_of(3) { second } else { first }
    }
}

impl Drop for TwoNodes {
    fn drop(&mut self) {
        for node in &self.nodes {
            let (quick, long) = node.trips();
            QUICK.fetch_add(quick, Ordering::Relaxed);
            LONG.fetch_add(long, Ordering::Relaxed);
        }
    }
}

static QUICK: AtomicU64 = AtomicU64::new(0);
static LONG: AtomicU64 = AtomicU64::new(0);

impl StoreLayer for TwoNodes {
    fn inner(&self) -> &dyn Store {
        self.one()
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
}

fn world() -> StoreFixture {
    let (clock, schema) = (conformance::clock(), Arc::new(common::Schema::take()));
    StoreFixture::new(Arc::new(TwoNodes::open(&schema, &clock)), clock).keeping(schema)
}

/// Both ways are taken, and come to the same.
fn both_ways_were_taken() {
    let (quick, long) = (QUICK.load(Ordering::Relaxed), LONG.load(Ordering::Relaxed));
    assert!(quick > 100 && long > 100, "{quick} transactions in one trip, {long} on the long way");
}

#[test]
fn every_scenario() {
    conformance::scenarios(&world);
    both_ways_were_taken();
}

#[test]
fn random_histories() {
    conformance::histories(&world, 2_000_000..2_000_010);
    both_ways_were_taken();
}

/// Several nodes may start at once on a database that has nothing yet.
#[test]
fn nodes_that_start_together() {
    common::runtime().block_on(async {
        for round in 0..3 {
            let (url, schema) = (common::shared_url(), format!("together_{}_{round}", std::process::id()));
            let nodes = (0..4).map(|_| common::load::open(&url, &schema));
            let nodes = futures_util::future::join_all(nodes).await;
            assert_eq!(nodes.len(), 4);
        }
    });
}
