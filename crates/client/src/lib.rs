//! An HTTP client of Longshore.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use longshore_api::job::NewJob;
//! use longshore::Client;
//!
//! let client = Client::new("http://127.0.0.1:7070")?;
//! let job = NewJob { job_type: "email.send".to_owned(), ..NewJob::default() };
//! let submitted = client.submit("emails", &job).await?;
//! println!("{}", client.job(&submitted.id).await?.state);
//! # Ok(())
//! # }
//! ```
//!
//! The types are those of `longshore-api`. The client sends each request once; [`Error::retry`]
//! says whether it can be repeated.
//!
//! - `client.rs`: [`Client`]: URL, connection pool, timeouts, requests and responses
//! - `error.rs`: [`Error`]: refused, not connected, no response, unexpected response
//! - `jobs.rs`, `queues.rs`, `system.rs`, `work.rs`, `workflows.rs`: one method per request
//! - `query.rs`: [`JobListQuery`], paths and query strings
//! - `clock.rs`: [`monotonic`], for timeouts and latencies

mod client;
mod clock;
mod error;
mod jobs;
mod query;
mod queues;
mod system;
mod work;
mod workflows;

pub use client::{Builder, Client};
pub use clock::monotonic;
pub use error::{BadUrl, Error};
pub use jobs::{PayloadBytes, WaitResult};
pub use query::JobListQuery;
