//! `DELETE /job/{id}`

use axum::http::StatusCode;
use longshore_core::cancel::Force;
use longshore_core::refusal::Refusal;
use longshore_engine::AdminCommand;

use super::super::request::OcypodRequest;
use super::super::response::{Answer, OcypodError, done};
use super::look;

/// Between two looks somebody may put the job back into line.
const TRIES_MAX: usize = 10;

/// In any state: what still lives is cancelled first.
pub(crate) async fn delete(call: OcypodRequest) -> Answer {
    let gone = || OcypodError::empty_body(StatusCode::NOT_FOUND);
    let (app, id) = (&call.app, call.job()?);
    let id = look(app, id).await?.ok_or_else(gone)?.id;
    for _ in 0..TRIES_MAX {
        match app.call_store(app.store.admin(AdminCommand::Delete { id })).await? {
            Ok(_) => return done(),
            Err(Refusal::JobNotFound) => return Err(gone()),
            Err(Refusal::IllegalTransition { .. }) => {}
            // A job of another queue depends on it.
            Err(refusal) => return Err(refusal.into()),
        }
        // If it has ended meanwhile, so much the better.
        drop(app.call_store(app.store.admin(AdminCommand::Cancel { id, reason: None, force: Force::Now })).await?);
    }
    Err(OcypodError::conflict("the job is being changed by others at the same time"))
}
