//! The scenario files over HTTP on PostgreSQL, in virtual time: the server passes its clock to
//! every transaction. `make test-http-postgres` runs all of them, the other tests run every eighth.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    reason = "these are tests, helpers included"
)]

#[path = "../common/mod.rs"]
mod common;

#[path = "../scenarios/http_subject.rs"]
mod http_subject;
#[path = "../scenarios/play.rs"]
mod play;
#[path = "../scenarios/requests.rs"]
mod requests;
#[path = "../scenarios/snapshots.rs"]
mod snapshots;
#[path = "../scenarios/workflows.rs"]
mod workflows;

use http_subject::HttpSubject;
use longshore_testkit::{differential, scenario};

/// Number of parts, which run in parallel.
const PARTS: usize = 2;

fn play(part: usize) {
    let every: usize = std::env::var("SCENARIO_STEP").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    play::play(scenario::all_files().iter().step_by(every).skip(part).step_by(PARTS));
}

#[test]
fn scenarios_over_http_on_postgres_first_part() {
    play(0);
}

#[test]
fn scenarios_over_http_on_postgres_second_part() {
    play(1);
}

/// Random histories: every response, and the state after every step, equals that of the model.
#[test]
fn random_histories_over_http_on_postgres() {
    differential::run_histories(HttpSubject::start, 600_000..600_002, 100).unwrap_or_else(|report| panic!("{report}"));
}
