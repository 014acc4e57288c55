//! The HTTP server of Longshore: the contract of the wire, on any [`Store`](longshore_store::Store).
//!
//! Routes read a request, ask the store, and write down the answer. They decide nothing: rules live in `longshore-core`, the shape of the wire
//! in `longshore-api`.
//!
//! In reading order:
//! - [`Options`] (`options.rs`) and [`Server`] (`server.rs`): bind, serve, drain
//! - `net/`: the accept loop, connections and their time-outs
//! - `app.rs`: [`AppState`], what every route can reach
//! - `wire/`: bodies, strict JSON, query strings, paths; answers and problems, with the one table of refusals
//! - `convert/`: between types of the wire and of the rules
//! - `routes/`: one file a verb, in `queues/`, `jobs/`, `work/` and `watch/`
//! - `live/`: what goes on beside requests: jobs that are waited for (`endings.rs`), the effects of commits (`feed.rs`),
//!   time (`maintenance.rs`, `virtual_time.rs`), who works (`workers.rs`), how fast (`tally.rs`)
//! - `openapi.rs`: the description of all of it that the server serves
//! - [`dialects`]: other servers' own routes
//! - [`declare`] (`declare.rs`): queues that a configuration names, put before anybody is served

mod app;
mod background;
mod convert;
mod declared_queues;
pub mod dialects;
mod net;
mod openapi;
mod options;
mod routes;
mod server;
mod wire;

pub use app::AppState;
pub use declared_queues::declare;
pub use options::{Limits, Options, SaveVirtualTime, ServerClock, StoreInfo};
pub use server::{Server, ServerError};
pub use wire::problem::ApiError;
