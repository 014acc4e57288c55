//! The routes: one file per resource. The table below is their index.
//!
//! A test compares the table with the OpenAPI description.

mod access;
mod attention;
mod batch;
mod dead_letters;
mod events;
mod fallback;
pub(crate) mod hot;
pub(crate) mod jobs;
pub(crate) mod leases;
mod operations;
mod queues;
mod schedules;
mod stats;
pub(crate) mod system;
mod types;
mod webhooks;
mod workers;
mod workflows;

use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing;
use longshore_store::clock::monotonic;

use crate::access::authorize::authorize;
use crate::dashboard;
use crate::dialects;
use crate::state::AppState;

/// Defines a table of routes, as a router and as a list for tests.
macro_rules! routes {
    ($name:ident, $list:ident; $($path:literal => $($method:ident $handler:path),+;)+) => {
        fn $name() -> Router<AppState> {
            Router::new()$(.route($path, routing::MethodRouter::new()$(.$method($handler))+))+
        }

        /// Methods and paths of the routes.
        #[cfg(test)]
        pub(crate) const $list: &[(&str, &str)] = &[$($((stringify!($method), $path)),+),+];
    };
}

routes! { v1, ROUTES;
    "/v1/queues" => get queues::list;
    "/v1/queues/{queue}" => put queues::put, get queues::get, delete queues::delete;
    "/v1/queues/{queue}/pause" => post queues::pause;
    "/v1/queues/{queue}/resume" => post queues::resume;
    "/v1/queues/{queue}/jobs" => post jobs::submit::submit;
    "/v1/jobs" => get jobs::list::list;
    "/v1/jobs/bulk" => post jobs::bulk::bulk;
    "/v1/jobs/{id}" => get jobs::get::get, patch jobs::admin::patch, delete jobs::admin::delete;
    "/v1/jobs/{id}/payload" => get jobs::get::payload;
    "/v1/jobs/{id}/attempts" => get jobs::get::attempts;
    "/v1/jobs/{id}/history" => get jobs::get::history;
    "/v1/jobs/{id}/inputs" => get jobs::get::inputs;
    "/v1/jobs/{id}/why" => get jobs::why::why;
    "/v1/jobs/{id}/wait" => get jobs::wait::wait;
    "/v1/jobs/{id}/submit" => post jobs::admin::submit_held;
    "/v1/jobs/{id}/cancel" => post jobs::admin::cancel;
    "/v1/jobs/{id}/requeue" => post jobs::admin::requeue;
    "/v1/jobs/{id}/dead-letter" => post jobs::admin::dead_letter;
    "/v1/jobs/{id}/run-now" => post jobs::admin::run_now;
    "/v1/claims" => post leases::claim::claim;
    "/v1/jobs/{id}/complete" => post leases::settle::complete;
    "/v1/jobs/{id}/fail" => post leases::settle::fail;
    "/v1/jobs/{id}/heartbeat" => post leases::heartbeat::heartbeat;
    "/v1/jobs/{id}/snooze" => post leases::settle::snooze;
    "/v1/jobs/{id}/release" => post leases::settle::release;
    "/v1/jobs/{id}/children" => post leases::children::children;
    "/v1/settlements" => post leases::settle::settlements;
    "/v1/heartbeats" => post leases::heartbeat::heartbeats;
    "/v1/workflows" => post workflows::create::create, get workflows::get::list;
    "/v1/workflows/{id}" => get workflows::get::get;
    "/v1/workflows/{id}/jobs" => post workflows::create::add_jobs;
    "/v1/workflows/{id}/close" => post workflows::admin::close;
    "/v1/workflows/{id}/cancel" => post workflows::admin::cancel;
    "/v1/workflows/{id}/retry" => post workflows::admin::retry;
    "/v1/events" => get events::events;
    "/v1/schedules" => get schedules::list;
    "/v1/schedules/{name}" => put schedules::put, get schedules::get, delete schedules::delete;
    "/v1/schedules/{name}/pause" => post schedules::pause;
    "/v1/schedules/{name}/resume" => post schedules::resume;
    "/v1/schedules/{name}/trigger" => post schedules::trigger;
    "/v1/schedules/{name}/ticks" => get schedules::ticks;
    "/v1/operations" => post operations::start, get operations::list;
    "/v1/operations/{id}" => get operations::get;
    "/v1/operations/{id}/continue" => post operations::resume;
    "/v1/operations/{id}/stop" => post operations::stop;
    "/v1/operations/{id}/undo" => post operations::undo;
    "/v1/stats" => get stats::stats;
    "/v1/types" => get types::list;
    "/v1/types/{type}" => get types::get;
    "/v1/attention" => get attention::attention;
    "/v1/dead-letters/groups" => get dead_letters::groups;
    "/v1/workers" => get workers::list;
    "/v1/workers/{worker}/quiet" => post workers::quiet;
    "/v1/workers/{worker}/stop" => post workers::stop;
    "/v1/workers/{worker}/resume" => post workers::resume;
    "/v1/tokens" => post access::create, get access::list;
    "/v1/tokens/self" => get access::own;
    "/v1/tokens/{id}" => delete access::revoke;
    "/v1/audit" => get access::audit;
    "/v1/webhooks" => get webhooks::list;
    "/v1/webhooks/{name}" => put webhooks::put, get webhooks::get, delete webhooks::delete;
    "/v1/webhooks/{name}/rotate" => post webhooks::rotate;
    "/v1/webhooks/{name}/test" => post webhooks::test;
    "/v1/webhooks/{name}/deliveries" => get webhooks::deliveries_of_endpoint;
    "/v1/jobs/{id}/deliveries" => get webhooks::deliveries_of_job;
    "/v1/deliveries/{id}/redeliver" => post webhooks::redeliver;
    "/v1/info" => get system::info;
    "/metrics" => get system::metrics;
    "/openapi.json" => get system::openapi;
    "/livez" => get system::livez;
    "/readyz" => get system::readyz;
    "/" => get dashboard::start_page;
}

routes! { virtual_clock, VIRTUAL_ROUTES;
    "/v1/clock" => get system::clock;
    "/v1/clock/advance" => post system::advance_clock;
}

pub(crate) fn router(app: AppState) -> Router {
    v1().merge(virtual_clock())
        .merge(dialects::routes())
        .merge(dashboard::routes())
        .fallback(fallback::not_found)
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .layer(from_fn_with_state(app.clone(), authorize))
        .layer(from_fn_with_state(app.clone(), measure))
        .with_state(app)
}

/// Counts, times and logs every request by its route. The span of the connection has its id.
async fn measure(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let started = monotonic();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("unknown", MatchedPath::as_str);
    record_request(&app, method.as_str(), route, response.status(), monotonic().saturating_sub(started));
    response
}

/// Counts and logs a finished request. `route` is a path of the table.
fn record_request(app: &AppState, method: &str, route: &str, status: StatusCode, duration: Duration) {
    app.metrics.request(method, route, status.as_u16(), duration);
    tracing::debug!(method, route, status = status.as_u16(), ?duration, "request finished");
}
