//! The routes of `/v1`: one file a verb.

mod batch;
mod fallback;
mod jobs;
mod queues;
mod work;

use axum::Router;
use axum::routing::{delete, get, post};

use crate::app::AppState;
use crate::dialects;

// What dialects share with these routes.
pub(crate) use work::claim::ask;
pub(crate) use work::handed::hand_over;

pub(crate) fn router(app: AppState) -> Router {
    Router::new()
        .route("/v1/queues", get(queues::list::list))
        .route("/v1/queues/{queue}", get(queues::get::get).put(queues::put::put).delete(queues::delete::delete))
        .route("/v1/queues/{queue}/pause", post(queues::pause::pause))
        .route("/v1/queues/{queue}/resume", post(queues::pause::resume))
        .route("/v1/queues/{queue}/jobs", post(jobs::submit::submit))
        .route("/v1/jobs/{id}", get(jobs::get::get))
        .route("/v1/claims", post(work::claim::claim))
        .route("/v1/jobs/{id}/complete", post(work::complete::complete))
        .merge(dialects::routes())
        .fallback(fallback::not_found)
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .with_state(app)
}
