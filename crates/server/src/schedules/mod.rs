//! Schedules: their records in the store, and the engine that processes their ticks.
//!
//! - `record.rs`: the stored form; `storage.rs`: reads and changes of one schedule
//! - `engine.rs`: which schedules are due; `tick.rs`: processes the ticks of one schedule
//! - `declared.rs`: schedules of a configuration file

pub(crate) mod declared;
pub(crate) mod definition;
pub(crate) mod engine;
mod record;
pub(crate) mod storage;
#[cfg(test)]
mod tests;
mod tick;
