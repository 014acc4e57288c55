//! Connections: accept, limit, refuse under overload, time out, drain; delivery of claimed jobs.

pub(crate) mod accept;
pub(crate) mod admission;
pub(crate) mod connection;
mod connection_limits;
mod cors;
pub(crate) mod delivery;
mod drain_body;
pub(crate) mod io_threads;
pub(crate) mod metrics_listener;
pub(crate) mod stream_guard;
mod timeout_stream;
pub(crate) mod tls;
