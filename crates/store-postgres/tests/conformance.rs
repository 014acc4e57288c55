//! The conformance suite on PostgreSQL.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::sync::{Arc, OnceLock};

use longshore_store::{Clock, Store, VirtualClock};
use longshore_store_postgres::{Connections, PostgresOptions, PostgresStore};
use longshore_testkit::conformance::{self, StoreFixture};

/// One pool for all stores: the suite opens thousands.
fn connections(url: &str) -> Connections {
    static SHARED: OnceLock<Connections> = OnceLock::new();
    SHARED.get_or_init(|| Connections::new(&PostgresOptions::new(url), 24).expect("an address")).clone()
}

fn open(schema: &common::Schema, clock: &Arc<VirtualClock>, writers: usize) -> Arc<dyn Store> {
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let options = PostgresOptions {
        schema: schema.name.clone(),
        clock: Some(clock),
        auto_migrate: false,
        writers,
        readers: 1,
        retention_slack: longshore_core::Duration::ZERO,
        runtime: Some(common::runtime().handle().clone()),
        connections: Some(connections(&schema.url)),
        ..PostgresOptions::new(&*schema.url)
    };
    Arc::new(PostgresStore::open(options).expect("the store opens"))
}

fn with_writers(writers: usize) -> StoreFixture {
    let (clock, schema) = (conformance::clock(), Arc::new(common::Schema::take()));
    let (same_clock, same_schema) = (Arc::clone(&clock), Arc::clone(&schema));
    let open_it = move || open(&same_schema, &same_clock, writers);
    StoreFixture::new(open_it(), clock).reopened_by(open_it).keeping(schema)
}

fn on_postgres() -> StoreFixture {
    with_writers(2)
}

/// One worker for all requests, with as few connections as possible.
fn on_one_worker() -> StoreFixture {
    with_writers(0)
}

mod postgres {
    longshore_testkit::conformance!(super::on_postgres, histories: 10, proofs: super::on_one_worker);
}
