//! The contract of the wire, over real sockets: every endpoint, every code, and what must survive.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests, helpers included"
)]

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod claims;
mod clock;
mod codes;
mod connections;
mod jobs;
mod lists;
mod logs;
mod long_polling;
mod operate;
mod problems;
mod queues;
mod restart;
mod submit;
mod watch;
mod work;
mod workflows;
