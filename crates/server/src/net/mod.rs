//! Connections: accepted, bounded, timed, drained.

pub(crate) mod accept;
mod connection;
mod connection_limits;
mod drain_body;
mod timeout_stream;
