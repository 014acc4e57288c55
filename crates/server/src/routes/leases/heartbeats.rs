//! `POST /v1/heartbeats`

use axum::extract::State;
use longshore_api::work::{BatchHeartbeat, Heartbeats, Results};
use longshore_core::id::JobId;
use serde_json::value::RawValue;

use super::heartbeat::told as extended;
use super::settlements::{check_size, no_verdict, told};
use crate::app::AppState;
use crate::convert::settlement::heartbeat;
use crate::convert::time;
use crate::wire::answer::{Answer, ok};
use crate::wire::body::JsonBody;
use crate::wire::json;
use crate::wire::problem::ItemError;
use crate::wire::query::NoQuery;

/// Each member has its own verdict: one that cannot be read does not hold up the others.
pub(crate) async fn heartbeats(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> Answer {
    let Heartbeats::<&RawValue> { heartbeats } = body.required()?;
    check_size("heartbeats", heartbeats.len())?;
    let read = |member: &&RawValue| json::object::<BatchHeartbeat>(member.get()).and_then(heartbeat);
    let members: Vec<_> = heartbeats.iter().map(read).collect();
    let asked: Vec<_> = members.iter().filter_map(|member| member.as_ref().ok()).cloned().collect();
    let ids: Vec<JobId> = asked.iter().map(|heartbeat| heartbeat.id).collect();
    let verdicts = if asked.is_empty() { Vec::new() } else { app.call_store(app.store.heartbeat(asked)).await? };
    let now = app.now();
    for (id, _) in ids.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_ok()) {
        app.workers.heartbeat(*id, now);
    }
    let mut verdicts = ids.into_iter().zip(verdicts);
    let result = |(raw, member): (&&RawValue, Result<_, ItemError>)| {
        let verdict = member.and_then(|_| {
            let (id, verdict) = verdicts.next().ok_or_else(no_verdict)?;
            Ok(extended(id, verdict?))
        });
        told(raw, verdict)
    };
    let results = heartbeats.iter().zip(members).map(result).collect();
    ok(&Results { results, now: Some(time(now)) })
}
