//! Durable operations on all jobs that match a filter.
//!
//! - `selection.rs`: the jobs of a filter: count and select
//! - `record.rs`: the stored form; `storage.rs`: reads and changes of one operation
//! - `work.rs`: one step of an operation; `take_back.rs`: the undo
//! - `engine.rs`: which operations are due, and the background task
//! - `convert.rs`: the wire form

pub(crate) mod convert;
pub(crate) mod engine;
mod record;
pub(crate) mod selection;
pub(crate) mod storage;
mod take_back;
#[cfg(test)]
mod tests;
mod work;
