//! Wire types of Longshore: requests and responses, shared by server, client and command line.
//!
//! The crate contains no rules and no I/O. Requests refuse unknown fields; responses may gain
//! fields. JSON of users (payload, result, progress, checkpoint) is a
//! [`serde_json::value::RawValue`] and is passed on byte for byte.
//!
//! - [`access`]: tokens, audit log
//! - [`attention`]: what operators should look at
//! - [`error`]: problem+json, and the table of error codes
//! - [`time`]: timestamps (RFC 3339) and durations (`1h15m`, or a number of seconds)
//! - [`enums`]: closed enums, from `longshore-types`; [`states`]: lists of states; [`tags`]
//! - [`settings`]: settings of queues and jobs, with the table of `docs/settings.md`
//! - [`queue`]; [`job`]: submission, record, attempts, history
//! - [`work`]: claims, settlements, heartbeats, children
//! - [`admin`]: commands to jobs; [`workflow`]: jobs that are submitted together
//! - [`events`]: the event stream
//! - [`operation`]: durable operations on all jobs that match a filter
//! - [`dead_letters`]: dead letters in groups
//! - [`schedule`]: schedules and their ticks
//! - [`webhook`]: endpoints and deliveries
//! - [`job_type`]: figures of job types, and new versions of their workers
//! - [`system`]: why a job does not run, statistics, workers, server, clock
//!
//! ```
//! use longshore_api::Duration;
//! use longshore_api::job::NewJob;
//!
//! let job: NewJob = serde_json::from_str(r#"{"type": "email", "delay": "5m"}"#).unwrap();
//! assert_eq!(job.delay, Some(Duration::from_secs(300)));
//! assert!(serde_json::from_str::<NewJob>(r#"{"type": "email", "dealy": "5m"}"#).is_err());
//! ```

pub mod access;
pub mod admin;
pub mod attention;
pub mod dead_letters;
pub mod enums;
pub mod error;
pub mod events;
pub mod job;
pub mod job_type;
pub mod operation;
pub mod queue;
pub mod schedule;
mod serde_util;
pub mod settings;
pub mod states;
pub mod system;
pub mod tags;
pub mod time;
pub mod webhook;
pub mod work;
pub mod workflow;

pub use error::{ErrorCode, MemberError, Problem, RetryAdvice};
pub use time::{Duration, Time};
