//! The contract of the wire once more, with the jobs on PostgreSQL.

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

#[path = "../wire/claims.rs"]
mod claims;
#[path = "../wire/clock.rs"]
mod clock;
#[path = "../wire/jobs.rs"]
mod jobs;
#[path = "../wire/lists.rs"]
mod lists;
#[path = "../wire/long_polling.rs"]
mod long_polling;
#[path = "../wire/operate.rs"]
mod operate;
#[path = "../wire/queues.rs"]
mod queues;
#[path = "../wire/submit.rs"]
mod submit;
#[path = "../wire/watch.rs"]
mod watch;
#[path = "../wire/work.rs"]
mod work;
#[path = "../wire/workflows.rs"]
mod workflows;
