//! The event stream: what changed, as it changes.
//!
//! - `log.rs`: [`EventLog`]: the last events in memory, and who waits for more
//! - `topic.rs`: the events of one job, workflow, queue or type, by number
//! - `batch.rs`: the events of one commit, serialized once for all listeners
//! - `filter.rs`: which events a listener wants
//! - `cursor.rs`: the position in a log, as clients see it
//! - `listener.rs`: one client's position, and the chunks it receives

mod batch;
mod cursor;
mod filter;
mod listener;
mod log;
#[cfg(test)]
mod tests;
mod topic;

pub(crate) use cursor::Cursor;
pub(crate) use filter::EventFilter;
pub(crate) use listener::StreamStart;
pub(crate) use log::EventLog;
