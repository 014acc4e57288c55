//! The scenario files over HTTP, in virtual time: the server behaves like the model, the engine and
//! every store.

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
mod http_subject;
mod play;
mod requests;
mod snapshots;
mod workflows;

use http_subject::HttpSubject;
use longshore_testkit::{differential, scenario};

/// Number of parts, which run in parallel.
const PARTS: usize = 4;

fn play(part: usize) {
    let files = scenario::all_files();
    assert!(files.len() >= 170, "only {} scenario files were found", files.len());
    play::play(files.iter().skip(part).step_by(PARTS));
}

#[test]
fn scenarios_over_http_first_part() {
    play(0);
}

#[test]
fn scenarios_over_http_second_part() {
    play(1);
}

#[test]
fn scenarios_over_http_third_part() {
    play(2);
}

#[test]
fn scenarios_over_http_fourth_part() {
    play(3);
}

/// Random histories: every response, and the state after every step, equals that of the model.
#[test]
fn random_histories_over_http() {
    differential::run_histories(HttpSubject::start, 500_000..500_012, 150).unwrap_or_else(|report| panic!("{report}"));
}
