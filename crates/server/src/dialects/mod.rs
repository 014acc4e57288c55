//! APIs of other job servers, on the same port and the same store. Each has its own folder.

pub mod ocypod;

use axum::Router;

use crate::state::AppState;

/// Returns the routes of all dialects; the router merges them with those of `/v1`.
pub fn routes() -> Router<AppState> {
    ocypod::routes()
}

/// Whether a GET of this path claims a job, as one of Ocypod's routes does.
pub(crate) fn is_claiming_get(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    parts.next() == Some("queue") && parts.next().is_some() && parts.next() == Some("job")
}
