//! Jobs: handed in, looked at, and what people do to them.

pub(crate) mod attempts;
pub(crate) mod bulk;
pub(crate) mod cancel;
pub(crate) mod dead_letter;
pub(crate) mod delete;
mod fields;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod inputs;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod payload;
pub(crate) mod requeue;
pub(crate) mod run_now;
mod same_payload;
pub(crate) mod submit;
pub(crate) mod submit_held;
pub(crate) mod wait;
pub(crate) mod why;

use longshore_api::work::JobState;
use longshore_core::id::JobId;
use longshore_engine::{AdminCommand, AdminResponse};

use crate::app::AppState;
use crate::convert::enums::ToWire;
use crate::wire::answer::{Answer, ok};
use crate::wire::problem::ApiError;

/// Gives a command to one job, and tells the state that it is in now.
async fn command(app: &AppState, id: JobId, command: AdminCommand) -> Answer {
    match app.admin(command).await? {
        AdminResponse::State { id, state } => {
            ok(&JobState { id: id.to_string(), state: state.wire(), cancel_requested: None })
        }
        AdminResponse::Done
        | AdminResponse::QueuePut { .. }
        | AdminResponse::CancelRequested
        | AdminResponse::Workflow { .. } => {
            Err(ApiError::new(longshore_api::ErrorCode::Internal, format!("an odd answer about job {id}")))
        }
    }
}
