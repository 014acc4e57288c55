//! The HTTP server of Longshore: the wire contract, on any [`Store`](longshore_store::Store).
//!
//! Routes parse a request, call the store and serialize the result. The rules are in
//! `longshore-core`, the wire format is in `longshore-api`.
//!
//! In reading order:
//! - `options.rs`, `server.rs`: [`ServerOptions`] and [`Server`]: bind, serve, drain
//! - `in_process.rs`: [`InProcessServer`]: the same without a socket, for the SDK
//! - `net/`: accept loop, connections, timeouts, delivery of claimed jobs
//! - `routes/`: the route table (`mod.rs`) and one file per resource
//! - `access/`: tokens, the actions and queues of callers, audit log, browser safety
//! - `state.rs`: [`AppState`], which all routes share, and its calls to the store
//! - `store_health.rs`: errors of the store that stop the server or are logged once
//! - `wire/`: bodies, strict JSON, query strings, paths, responses, problem documents
//! - `convert/`: conversion between wire types and core types
//! - `background/`: change listener, ticker, virtual time, completion waiters, workers, series,
//!   metrics
//! - `events/`: the event log and its listeners
//! - `otlp/`: traces, exported by OpenTelemetry's protocol
//! - `webhooks/`: endpoints, deliveries, and the task that sends them
//! - `dashboard.rs`: the files of the dashboard, embedded by `build.rs`
//! - `openapi/`: the OpenAPI description that the server serves, with examples
//! - [`dialects`]: APIs of other job servers (Ocypod)
//! - `schedules/`: records of schedules, and the engine that processes their ticks;
//!   [`declare_schedule`] creates the schedules of a configuration before serving
//! - `operations/`: durable operations on all jobs that match a filter
//! - `declared_queues.rs`: [`declare`] creates the queues of a configuration before serving

mod access;
mod background;
mod convert;
mod dashboard;
mod declared_queues;
pub mod dialects;
mod events;
mod in_process;
mod net;
mod openapi;
mod operations;
mod options;
mod otlp;
mod routes;
mod schedules;
mod server;
mod state;
mod store_health;
mod webhooks;
mod wire;

pub use access::{TokenRecord, TokenSecret, tokens};
pub use declared_queues::declare;
pub use in_process::InProcessServer;
pub use longshore_webhooks::network::{Cidr, InvalidNetwork};
pub use options::{Limits, SaveVirtualTime, ServerClock, ServerOptions, StoreInfo};
pub use otlp::config::OtlpConfig;
pub use schedules::declared::declare_schedule;
pub use server::{Listeners, Server, ServerError};
pub use state::AppState;
pub use webhooks::endpoint::declare as declare_webhook;
pub use wire::problem::ApiError;
