//! Client and worker of Longshore, a durable job queue.
//!
//! # Submit a job
//!
//! ```no_run
//! use longshore::{Client, Job};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Job)]
//! #[job(type = "email.send", queue = "mail")]
//! struct SendEmail { to: String }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("http://127.0.0.1:7070")?;
//! let job = client.submit(SendEmail { to: "ada@example.com".into() }).key("welcome 7").await?;
//! println!("{} is stored", job.id());
//! # Ok(())
//! # }
//! ```
//!
//! # Run jobs
//!
//! A handler is a plain async function: see [`Worker`]. Outcomes are values: see [`HandlerError`].
//!
//! # Modules
//!
//! - `client.rs`: [`Client`]: URL, connection pool, timeouts, requests and responses
//! - `connect.rs`: connections over TCP, or to a server in the same process
//! - `hangup.rs`: ends waiting requests without losing responses that are on their way
//! - `job.rs`: [`Job`]: what producer and worker share
//! - `submit.rs`: typed submissions with retries, workflows, [`JobHandle`]
//! - `jobs.rs`, `queues.rs`, `schedules.rs`, `system.rs`, `work.rs`, `workflows.rs`: one method
//!   per request, sent once; [`Error::retry`] says whether it can be repeated
//! - `events.rs`: [`EventStream`]: changes as they happen, with reconnects
//! - `worker/`: [`Worker`]: handlers, leases, settlements, shutdown
//! - `error.rs`: [`Error`]: refused, not connected, no response, unexpected response
//! - `query.rs`: [`JobListQuery`], paths and query strings
//! - `clock.rs`: [`monotonic`], for timeouts and latencies; `random.rs`: keys and jitter

// The derive names the crate as its users do.
extern crate self as longshore;

mod client;
mod clock;
mod connect;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
mod events;
mod hangup;
mod job;
mod jobs;
mod operations;
mod query;
mod queues;
mod random;
mod schedules;
mod submit;
mod system;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(any(feature = "postgres", feature = "sqlx"))]
mod transaction;
mod webhooks;
mod work;
mod worker;
mod workflows;

pub use client::{Builder, Client};
pub use clock::monotonic;
#[cfg(feature = "embedded")]
pub use embedded::{InProcessOptions, Longshore, OpenError};
pub use error::{BadUrl, Error, ServerRefusal};
pub use events::{EventQuery, EventStream, ReceivedEvent};
pub use job::Job;
pub use jobs::{PayloadBytes, WaitResult};
pub use longshore_api as api;
pub use longshore_api::enums::Priority;
pub use longshore_derive::Job;
pub use query::JobListQuery;
pub use schedules::{ScheduleRequest, ScheduleTime};
#[doc(hidden)]
pub use serde_json;
pub use submit::{JobHandle, JobRequest, Submit, WaitError, WorkflowRequest};
#[cfg(any(feature = "postgres", feature = "sqlx"))]
pub use transaction::SubmitInError;
#[cfg(feature = "postgres")]
pub use transaction::{submit_in, submit_in_schema};
#[cfg(feature = "sqlx")]
pub use transaction::{submit_in_sqlx, submit_in_sqlx_schema};
pub use worker::{
    BatchHandler, BoxFuture, CancelReason, Classifier, Handler, HandlerError, IntoOutcome, JobContext, JobItem,
    JobOutcome, Middleware, NeededState, Next, RunEnd, RunReport, State, StateSource, Worker, WorkerError, WorkerEvent,
    WorkerReport, WorkerShutdown,
};

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
