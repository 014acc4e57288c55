//! Connections: accepted, bounded, timed, drained.

pub(crate) mod accept;
mod caps;
mod connection;
mod timed;
mod unread;
