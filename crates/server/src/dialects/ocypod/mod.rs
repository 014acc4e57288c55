//! Ocypod 0.8: its own routes and words, on the jobs of the same store.
//!
//! Its queues are the queues of the profile `ocypod`, its job ids are sequence numbers, its jobs have the type `ocypod`. What a client may do to the status of
//! a job is a rule of `longshore-core` ([`longshore_core::ocypod::status`]). How to move from Ocypod to Longshore: `docs/ocypod.md`.
//!
//! - `call.rs`: a request as these routes see it; `answer.rs`: answers, and refusals in prose
//! - `length.rs`: durations such as `1h 15m`; [`settings`](QueueKeys): the five settings of a queue; `object.rs`: the 17 fields of a job
//! - `queues/`, `jobs/`, `tag.rs`, `info.rs`, `health.rs`: one file a verb

mod duration;
mod health;
mod info;
mod job;
mod jobs;
mod queues;
mod request;
mod response;
mod settings;
mod tag;

pub use settings::{QueueKeys, queue_settings};

use axum::Router;
use axum::routing::{MethodRouter, any};

use crate::app::AppState;

pub(crate) use request::{is_ocypod_path, nothing_there};

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/health", any(request::not_found).get(health::health).head(request::not_found))
        .route("/info", any(info::info))
        .route("/info/version", any(info::version))
        .route("/queue", any(queues::list::list))
        .route("/queue/{name}", known().get(queues::get::get).put(queues::put::put).delete(queues::delete::delete))
        .route("/queue/{name}/size", any(queues::size::size))
        .route("/queue/{name}/job_ids", any(queues::job_ids::job_ids))
        .route("/queue/{name}/job", known().get(queues::claim::take).post(queues::create::create))
        .route("/job/{id}", known().get(jobs::get::get).patch(jobs::patch::patch).delete(jobs::delete::delete))
        .route("/job/{id}/status", any(jobs::status::status))
        .route("/job/{id}/output", known().get(jobs::output::get).put(jobs::output::put))
        .route("/job/{id}/heartbeat", known().put(jobs::heartbeat::heartbeat))
        .route("/tag/{tag}", any(request::not_found).get(tag::tag).head(request::not_found))
}

/// A path that takes some methods; the others, HEAD among them, hear so without a word.
fn known() -> MethodRouter<AppState> {
    any(request::no_such_method).head(request::no_such_method)
}
