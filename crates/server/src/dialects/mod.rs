//! Routes of other servers, answered on the same port from the same store. Each dialect has a folder of its own.

pub mod ocypod;

use axum::Router;

use crate::app::AppState;

/// All dialects; merged into the router beside the routes of `/v1`.
pub fn routes() -> Router<AppState> {
    ocypod::routes()
}
