//! The HTTP API of Ocypod 0.8, on the jobs of the same store. Migration guide: `docs/ocypod.md`.
//!
//! Its queues have the profile `ocypod`, its jobs have the type `ocypod`, and its job ids are
//! sequence numbers. [`longshore_core::ocypod::status`] decides which status changes are legal.
//!
//! - `request.rs`, `response.rs`: extractor and responses
//! - `duration.rs`: durations such as `1h 15m`
//! - `settings.rs`: the five settings of a queue ([`QueueKeys`])
//! - `job.rs`: the 17 fields of a job
//! - `queues.rs`, `jobs.rs`, `info.rs`: the routes

mod duration;
mod info;
mod job;
mod jobs;
mod queues;
mod request;
mod response;
mod settings;

pub use settings::{QueueKeys, queue_settings};

use axum::Router;
use axum::routing::{MethodRouter, any};

use crate::state::AppState;

pub(crate) use request::{is_ocypod_path, unknown_path};
pub(crate) use response::error_response;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/health", any(request::not_found).get(info::health).head(request::not_found))
        .route("/info", any(info::info))
        .route("/info/version", any(info::version))
        .route("/queue", any(queues::list))
        .route("/queue/{name}", known_path().get(queues::get).put(queues::put).delete(queues::delete))
        .route("/queue/{name}/size", any(queues::size))
        .route("/queue/{name}/job_ids", any(queues::job_ids))
        .route("/queue/{name}/job", known_path().get(queues::claim).post(queues::submit))
        .route("/job/{id}", known_path().get(jobs::get).patch(jobs::patch).delete(jobs::delete))
        .route("/job/{id}/status", any(jobs::status))
        .route("/job/{id}/output", known_path().get(jobs::get_output).put(jobs::put_output))
        .route("/job/{id}/heartbeat", known_path().put(jobs::heartbeat))
        .route("/tag/{tag}", any(request::not_found).get(jobs::tag).head(request::not_found))
}

/// A path with routes for some methods; all others, also HEAD, get 405 with an empty body.
fn known_path() -> MethodRouter<AppState> {
    any(request::method_not_allowed).head(request::method_not_allowed)
}
