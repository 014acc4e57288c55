//! `PUT /queue/{name}`

use std::num::NonZeroUsize;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_engine::{AdminCommand, AdminResponse};

use super::super::request::{OcypodRequest, payload_max};
use super::super::response::{Answer, OcypodError, at};
use super::super::settings::Given;
use crate::app::AppState;

/// Creates a queue, or changes its settings: what is left out returns to its default.
pub(crate) async fn put(call: OcypodRequest) -> Answer {
    let (app, name) = (call.app.clone(), call.queue());
    let body = call.json(usize::try_from(payload_max()).unwrap_or(usize::MAX))?;
    let given: Given = body.object()?;
    let name = name?;
    let known = app.call_store(app.store.queue(name.clone())).await?;
    if let Some(report) = known.as_ref().filter(|report| report.queue.profile != Profile::Ocypod) {
        let profile = report.queue.profile;
        return Err(OcypodError::bad(format!("Queue '{name}' is not one of Ocypod's: its profile is {profile}")));
    }
    let overrides = given.read(known.as_ref().map(|report| report.queue.as_ref()))?;
    let command = AdminCommand::PutQueue {
        queue: name.clone(),
        profile: Some(Profile::Ocypod),
        overrides: Some(Box::new(overrides)),
    };
    let created = admin(&app, command).await? == AdminResponse::QueuePut { created: true };
    let status = if created { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    at(status.into_response(), &format!("/queue/{name}"))
}

/// Slices of a deletion that a PUT waits for, and the jobs in one.
const SLICES_MAX: usize = 1_000;
const SLICE_JOBS: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

/// A long queue of the same name may still be on its way out: Ocypod's are gone at once, so its clients do not expect to wait.
async fn admin(app: &AppState, command: AdminCommand) -> Result<AdminResponse, OcypodError> {
    for _ in 0..SLICES_MAX {
        match app.call_store(app.store.admin(command.clone())).await? {
            Err(Refusal::Illegal(_)) => app.call_store(app.store.tick(SLICE_JOBS)).await?,
            answer => return Ok(answer?),
        };
    }
    Err(OcypodError::conflict("the queue is still being deleted"))
}
