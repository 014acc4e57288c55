//! The PostgreSQL store does what every store must.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::sync::{Arc, OnceLock};

use longshore_store::{Clock, Store, VirtualClock};
use longshore_store_postgres::{Connections, Options, PostgresStore};
use longshore_testkit::conformance::{self, StoreFixture};

/// Warm ones: thousands of stores are opened.
fn connections(url: &str) -> Connections {
    static SHARED: OnceLock<Connections> = OnceLock::new();
    SHARED.get_or_init(|| Connections::new(&Options::new(url), 24).expect("an address")).clone()
}

fn open(schema: &common::Schema, clock: &Arc<VirtualClock>, lanes: usize) -> Arc<dyn Store> {
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let options = Options {
        schema: schema.name.clone(),
        clock: Some(clock),
        auto_migrate: false,
        writers: lanes,
        readers: 1,
        retention_slack: longshore_core::Duration::ZERO,
        runtime: Some(common::runtime().handle().clone()),
        connections: Some(connections(&schema.url)),
        ..Options::new(&*schema.url)
    };
    Arc::new(PostgresStore::open(options).expect("the store opens"))
}

fn with_lanes(lanes: usize) -> StoreFixture {
    let (clock, schema) = (conformance::clock(), Arc::new(common::Schema::take()));
    let (same_clock, same_schema) = (Arc::clone(&clock), Arc::clone(&schema));
    let open_it = move || open(&same_schema, &same_clock, lanes);
    StoreFixture::new(open_it(), clock).reopened_by(open_it).keeping(schema)
}

fn on_postgres() -> StoreFixture {
    with_lanes(2)
}

/// Opened thousands of times, each with as few connections as can be.
fn on_one_lane() -> StoreFixture {
    with_lanes(0)
}

mod postgres {
    longshore_testkit::conformance!(super::on_postgres, histories: 10, proofs: super::on_one_lane);
}
