//! The routes: one file a verb. The table below is the only list of them; the OpenAPI description is held against it by a test.

mod batch;
mod fallback;
mod jobs;
pub(crate) mod leases;
mod queues;
pub(crate) mod system;
mod workflows;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing;
use longshore_store::clock::monotonic;

use crate::app::AppState;
use crate::dialects;

/// A table of routes as a router and as a list.
macro_rules! routes {
    ($name:ident, $list:ident; $($path:literal => $($method:ident $handler:path),+;)+) => {
        fn $name() -> Router<AppState> {
            Router::new()$(.route($path, routing::MethodRouter::new()$(.$method($handler))+))+
        }

        /// Methods and paths.
        #[cfg(test)]
        pub(crate) const $list: &[(&str, &str)] = &[$($((stringify!($method), $path)),+),+];
    };
}

routes! { v1, ROUTES;
    "/v1/queues" => get queues::list::list;
    "/v1/queues/{queue}" => put queues::put::put, get queues::get::get, delete queues::delete::delete;
    "/v1/queues/{queue}/pause" => post queues::pause::pause;
    "/v1/queues/{queue}/resume" => post queues::pause::resume;
    "/v1/queues/{queue}/jobs" => post jobs::submit::submit;
    "/v1/jobs" => get jobs::list::list;
    "/v1/jobs/bulk" => post jobs::bulk::bulk;
    "/v1/jobs/{id}" => get jobs::get::get, patch jobs::patch::patch, delete jobs::delete::delete;
    "/v1/jobs/{id}/payload" => get jobs::payload::payload;
    "/v1/jobs/{id}/attempts" => get jobs::attempts::attempts;
    "/v1/jobs/{id}/history" => get jobs::history::history;
    "/v1/jobs/{id}/inputs" => get jobs::inputs::inputs;
    "/v1/jobs/{id}/why" => get jobs::why::why;
    "/v1/jobs/{id}/wait" => get jobs::wait::wait;
    "/v1/jobs/{id}/submit" => post jobs::submit_held::submit_held;
    "/v1/jobs/{id}/cancel" => post jobs::cancel::cancel;
    "/v1/jobs/{id}/requeue" => post jobs::requeue::requeue;
    "/v1/jobs/{id}/dead-letter" => post jobs::dead_letter::dead_letter;
    "/v1/jobs/{id}/run-now" => post jobs::run_now::run_now;
    "/v1/claims" => post leases::claim::claim;
    "/v1/jobs/{id}/complete" => post leases::complete::complete;
    "/v1/jobs/{id}/fail" => post leases::fail::fail;
    "/v1/jobs/{id}/heartbeat" => post leases::heartbeat::heartbeat;
    "/v1/jobs/{id}/snooze" => post leases::snooze::snooze;
    "/v1/jobs/{id}/release" => post leases::release::release;
    "/v1/jobs/{id}/children" => post leases::children::children;
    "/v1/settlements" => post leases::settlements::settlements;
    "/v1/heartbeats" => post leases::heartbeats::heartbeats;
    "/v1/workflows" => post workflows::create::create, get workflows::list::list;
    "/v1/workflows/{id}" => get workflows::get::get;
    "/v1/workflows/{id}/jobs" => post workflows::add_jobs::grow;
    "/v1/workflows/{id}/close" => post workflows::close::close;
    "/v1/workflows/{id}/cancel" => post workflows::cancel::cancel;
    "/v1/workflows/{id}/retry" => post workflows::retry::retry;
    "/v1/stats" => get system::stats::stats;
    "/v1/workers" => get system::workers::workers;
    "/v1/info" => get system::info::info;
    "/metrics" => get system::metrics::metrics;
    "/openapi.json" => get system::openapi::openapi;
    "/livez" => get system::health::livez;
    "/readyz" => get system::health::readyz;
    "/" => get system::root::root;
}

routes! { in_virtual_time, VIRTUAL_ROUTES;
    "/v1/clock" => get system::clock::clock;
    "/v1/clock/advance" => post system::clock::advance;
}

pub(crate) fn router(app: AppState) -> Router {
    let clock = if app.virtual_time.is_some() { in_virtual_time() } else { Router::new() };
    v1().merge(clock)
        .merge(dialects::routes())
        .fallback(fallback::not_found)
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .layer(from_fn_with_state(app.clone(), measure))
        .with_state(app)
}

/// Counts and times every request by its route.
async fn measure(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let started = monotonic();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("unknown", MatchedPath::as_str);
    // Whatever is not a method of ours is one word: labels are bounded.
    let method = if ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"].contains(&method.as_str()) {
        method.as_str()
    } else {
        "other"
    };
    app.metrics.request(method, route, response.status().as_u16(), monotonic().saturating_sub(started));
    response
}
