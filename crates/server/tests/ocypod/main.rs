//! The Ocypod API over real sockets.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says no by panicking"
)]

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod harness;
mod info;
mod jobs;
mod mixed_api;
mod queues;
mod status;
mod time;
mod wire;
