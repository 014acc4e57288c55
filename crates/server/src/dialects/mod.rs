//! Routes of other servers, answered on the same port from the same store. Each dialect has a folder of its own.

pub mod ocypod;

use axum::Router;

use crate::app::AppState;

/// All dialects; merged into the router beside the routes of `/v1`.
pub fn routes() -> Router<AppState> {
    ocypod::routes()
}

/// Whether a GET of this path changes something: of Ocypod's routes one takes a job.
pub(crate) fn is_claiming_get(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    parts.next() == Some("queue") && parts.next().is_some() && parts.next() == Some("job")
}
