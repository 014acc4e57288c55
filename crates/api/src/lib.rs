//! The wire of Longshore: what is sent and what comes back, in Rust types.
//!
//! Nothing here decides anything, and nothing knows the rules or a store: the server reads requests with these types and writes its answers with
//! them, clients do the reverse. Requests refuse fields they do not know; answers may gain fields.
//!
//! In reading order:
//! - [`error`]: problem+json and the one table of error codes
//! - [`time`]: instants (RFC 3339) and durations (`1h15m`, or a number of seconds)
//! - [`words`]: closed sets of words, [`States`](states::States) for several of them, [`Priority`](words::Priority) and [`Tags`](tags::Tags) with their two spellings
//! - [`settings`]: of a queue, and of a job; partial on the way in, whole on the way out
//! - [`queue`], [`job`], [`work`] (claims, settlements, heartbeats), [`operate`] (what people do to jobs), [`workflow`], [`watch`] (stats, workers, info, clock)
//!
//! JSON that belongs to users (payload, result, progress, checkpoint) is a [`serde_json::value::RawValue`]: it is passed on byte for byte.

pub mod admin;
pub mod enums;
pub mod error;
pub mod job;
pub mod queue;
mod serde_util;
pub mod settings;
pub mod states;
pub mod system;
pub mod tags;
pub mod time;
pub mod work;
pub mod workflow;

pub use error::{ErrorCode, MemberError, Problem, RetryAdvice};
pub use time::{Duration, Time};
