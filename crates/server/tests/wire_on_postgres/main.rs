//! The wire contract on PostgreSQL.

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

mod fleet;
mod fleet_events;
mod fleet_operations;
mod fleet_schedules;

#[path = "../wire/admin.rs"]
mod admin;
#[path = "../wire/attention.rs"]
mod attention;
#[path = "../wire/claims.rs"]
mod claims;
#[path = "../wire/clock.rs"]
mod clock;
#[path = "../wire/dead_letters.rs"]
mod dead_letters;
#[path = "../wire/events.rs"]
mod events;
#[path = "../wire/jobs.rs"]
mod jobs;
#[path = "../wire/leases.rs"]
mod leases;
#[path = "../wire/lists.rs"]
mod lists;
#[path = "../wire/long_polling.rs"]
mod long_polling;
#[path = "../wire/operations.rs"]
mod operations;
#[path = "../wire/queues.rs"]
mod queues;
#[path = "../wire/schedule_model.rs"]
mod schedule_model;
#[path = "../wire/schedules.rs"]
mod schedules;
#[path = "../wire/settle_in_claim.rs"]
mod settle_in_claim;
#[path = "../wire/stats.rs"]
mod stats;
#[path = "../wire/submit.rs"]
mod submit;
#[path = "../wire/system.rs"]
mod system;
#[path = "../wire/trace_context.rs"]
mod trace_context;
#[path = "../wire/traces.rs"]
mod traces;
#[path = "../wire/webhook_model.rs"]
mod webhook_model;
#[path = "../wire/webhooks.rs"]
mod webhooks;
#[path = "../wire/workers.rs"]
mod workers;
#[path = "../wire/workflows.rs"]
mod workflows;
