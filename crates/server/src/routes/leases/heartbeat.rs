//! `POST /v1/jobs/{id}/heartbeat`

use axum::extract::State;
use longshore_api::enums::State as Word;
use longshore_api::work::{Extended as Told, Heartbeat};
use longshore_core::heartbeat::{HeartbeatData, LeaseRenewal};
use longshore_core::id::JobId;

use crate::app::AppState;
use crate::convert::settlement::token;
use crate::convert::{raw, time, times};
use crate::wire::answer::{Answer, ok};
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;

pub(crate) async fn heartbeat(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> Answer {
    let Heartbeat { lease, progress, checkpoint } = body.object()?;
    let notes = HeartbeatData { progress: progress.map(raw::bytes), checkpoint: checkpoint.map(raw::bytes) };
    let heartbeat = longshore_engine::Heartbeat { id, token: token(lease.as_deref()), notes };
    let verdicts = app.call_store(app.store.heartbeat(vec![heartbeat])).await?;
    let verdict = verdicts.into_iter().next().ok_or_else(|| ApiError::bad_request("nothing was extended"))?;
    let extended = verdict?;
    let now = app.now();
    app.workers.heartbeat(id, now);
    ok(&Told { now: Some(time(now)), ..told(id, extended) })
}

pub(crate) fn told(id: JobId, extended: LeaseRenewal) -> Told {
    Told {
        id: id.to_string(),
        state: Word::Running,
        expires_at: times(extended.expires_at),
        cancel_requested: extended.cancel_requested,
        last_attempt: extended.last_attempt,
        now: None,
    }
}
