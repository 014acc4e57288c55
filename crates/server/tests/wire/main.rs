//! The wire contract over real sockets: every route, every error code, restarts.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests, helpers included"
)]

#[path = "../common/mod.rs"]
mod common;

mod admin;
mod attention;
mod bad_input;
mod claims;
mod clock;
mod codes;
mod connections;
mod dead_letters;
mod events;
mod jobs;
mod leases;
mod lists;
mod logs;
mod long_polling;
mod openapi;
mod operations;
mod overload;
mod problems;
mod queues;
mod raw_sockets;
mod restart;
mod schedule_model;
mod schedules;
mod settle_in_claim;
mod stats;
mod submit;
mod system;
mod tls;
mod trace_context;
mod traces;
mod types;
mod webhook_faults;
mod webhook_model;
mod webhooks;
mod workers;
mod workflows;
