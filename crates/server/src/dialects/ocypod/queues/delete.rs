//! `DELETE /queue/{name}`

use axum::http::StatusCode;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_engine::{AdminCommand, DeleteQueue, QueueDeleteMode};

use super::super::request::OcypodRequest;
use super::super::response::{Answer, OcypodError, done};

/// Its waiting jobs go with it; running ones may finish, ended ones stay.
pub(crate) async fn delete(call: OcypodRequest) -> Answer {
    let (app, queue) = (&call.app, call.queue()?);
    let known = app.call_store(app.store.queue(queue.clone())).await?;
    if known.is_none_or(|report| report.queue.profile != Profile::Ocypod) {
        return Err(OcypodError::empty_body(StatusCode::NOT_FOUND));
    }
    let how = DeleteQueue::Force(QueueDeleteMode::LetRunningFinish);
    match app.call_store(app.store.admin(AdminCommand::DeleteQueue { queue, how })).await? {
        Ok(_) => done(),
        Err(Refusal::QueueNotFound) => Err(OcypodError::empty_body(StatusCode::NOT_FOUND)),
        Err(refusal) => Err(refusal.into()),
    }
}
