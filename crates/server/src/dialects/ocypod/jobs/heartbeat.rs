//! `PUT /job/{id}/heartbeat`

use longshore_core::heartbeat::HeartbeatData;
use longshore_core::policy::Fencing;
use longshore_core::refusal::Refusal;
use longshore_engine::Heartbeat;

use super::super::request::OcypodRequest;
use super::super::response::{Answer, OcypodError, done};
use super::find;

/// Whatever the body says.
pub(crate) async fn heartbeat(call: OcypodRequest) -> Answer {
    let (app, id) = (&call.app, call.job()?);
    let job = find(app, id).await?;
    // The dialect has no tokens: whoever speaks, speaks for the present lease.
    let token = match job.policy.fencing {
        Fencing::Optional => None,
        Fencing::Required => job.state.lease().map(|lease| lease.token),
    };
    let heartbeat = Heartbeat { id: job.id, token, notes: HeartbeatData::default() };
    let verdicts = app.call_store(app.store.heartbeat(vec![heartbeat])).await?;
    match verdicts.into_iter().next() {
        Some(Ok(_)) => done(),
        Some(Err(Refusal::JobNotFound)) => Err(OcypodError::no_job(id)),
        Some(Err(Refusal::StaleLease(_))) | None => {
            Err(OcypodError::conflict(format!("Cannot heartbeat job {id}, job is not running")))
        }
        Some(Err(refusal)) => Err(refusal.into()),
    }
}
