//! A client of Longshore over HTTP.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use longshore_api::job::NewJob;
//! use longshore_client::Client;
//!
//! let client = Client::new("http://127.0.0.1:7070")?;
//! let job = NewJob { job_type: "email.send".to_owned(), ..NewJob::default() };
//! let submitted = client.submit("emails", &job).await?;
//! println!("{}", client.job(&submitted.id).await?.state);
//! # Ok(())
//! # }
//! ```
//!
//! Types are those of `longshore-api`; the rules are the server's. A call is made once: whether it may be made again is in its [`Error`].
//!
//! - `client.rs`: [`Client`], its address and patience, one request and its answer
//! - `error.rs`: [`Error`]: refused, not reached, no answer, not understood
//! - `queues.rs`, `jobs.rs`, `work.rs`, `workflows.rs`, `watch.rs`: one method a verb
//! - `query.rs`: [`JobFilter`], and paths

mod client;
mod error;
mod jobs;
mod query;
mod queues;
mod system;
mod work;
mod workflows;

pub use client::{Builder, Client};
pub use error::{BadUrl, Error};
pub use jobs::{PayloadBytes, WaitResult};
pub use query::JobFilter;
