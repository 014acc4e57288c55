//! The PostgreSQL store does what every store must.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::sync::Arc;

use longshore_store::{Clock, Store, VirtualClock};
use longshore_store_postgres::{Options, PostgresStore};
use longshore_testkit::conformance::{self, World};

fn open(schema: &common::Schema, clock: &Arc<VirtualClock>) -> Arc<dyn Store> {
    let clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(clock);
    let options = Options {
        schema: schema.name.clone(),
        clock: Some(clock),
        migrates: false,
        retention_slack: longshore_core::Duration::ZERO,
        ..Options::new(&*schema.url)
    };
    Arc::new(PostgresStore::open(options).expect("the store opens"))
}

fn on_postgres() -> World {
    let (clock, schema) = (conformance::clock(), Arc::new(common::Schema::take()));
    let (same_clock, same_schema) = (Arc::clone(&clock), Arc::clone(&schema));
    let open_it = move || open(&same_schema, &same_clock);
    World::new(open_it(), clock).reopened_by(open_it).keeping(schema)
}

mod postgres {
    longshore_testkit::conformance!(super::on_postgres, histories: 10);
}
