//! Heartbeats: renew a lease, or a batch of leases.

use longshore_api::enums::State as JobStateName;
use longshore_api::work::{BatchHeartbeat, Extended, Heartbeat, Heartbeats, Results};
use longshore_core::directive::WorkerDirective;
use longshore_core::heartbeat::{HeartbeatData, LeaseRenewal};
use longshore_core::id::JobId;
use serde_json::value::RawValue;

use super::settle::{check_size, no_verdict, to_wire};
use crate::access::CallerState as State;
use crate::convert::settlement::{heartbeat as parse_heartbeat, token};
use crate::convert::{raw, time, times};
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::json;
use crate::wire::path::JobPath;
use crate::wire::problem::ItemError;
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, ok};

/// `POST /v1/jobs/{id}/heartbeat`
pub(crate) async fn heartbeat(
    State(app): State<AppState>,
    JobPath(id): JobPath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let Heartbeat { lease, progress, checkpoint } = body.object()?;
    let notes = HeartbeatData { progress: progress.map(raw::bytes), checkpoint: checkpoint.map(raw::bytes) };
    let heartbeat = longshore_engine::Heartbeat { id, token: token(lease.as_deref()), notes };
    let verdicts = app.call_store(app.store.heartbeat(vec![heartbeat])).await?;
    let renewal = verdicts.into_iter().next().ok_or_else(no_verdict)??;
    let now = app.now();
    app.workers.heartbeat(renewal.worker.as_ref(), id, now);
    let directive = Some(app.store.directive(renewal.worker.as_ref()));
    ok(&Extended { directive, now: Some(time(now)), ..renewed(id, &renewal) })
}

/// `POST /v1/heartbeats`: each item has its own verdict; an invalid one does not affect others.
pub(crate) async fn heartbeats(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> ApiResult {
    let Heartbeats::<&RawValue> { heartbeats } = body.required()?;
    check_size("heartbeats", heartbeats.len())?;
    let parse = |item: &&RawValue| json::object::<BatchHeartbeat>(item.get()).and_then(parse_heartbeat);
    let items: Vec<_> = heartbeats.iter().map(parse).collect();
    let valid: Vec<_> = items.iter().filter_map(|item| item.as_ref().ok()).cloned().collect();
    let ids: Vec<JobId> = valid.iter().map(|heartbeat| heartbeat.id).collect();
    let verdicts = if valid.is_empty() { Vec::new() } else { app.call_store(app.store.heartbeat(valid)).await? };
    let now = app.now();
    let mut directive = WorkerDirective::Run;
    for (id, renewal) in ids.iter().zip(&verdicts).filter_map(|(id, verdict)| Some((id, verdict.as_ref().ok()?))) {
        app.workers.heartbeat(renewal.worker.as_ref(), *id, now);
        directive = directive.max(app.store.directive(renewal.worker.as_ref()));
    }
    let mut verdicts = ids.into_iter().zip(verdicts);
    let result = |(raw, item): (&&RawValue, Result<_, ItemError>)| {
        let verdict = item.and_then(|_| {
            let (id, verdict) = verdicts.next().ok_or_else(no_verdict)?;
            Ok(renewed(id, &verdict?))
        });
        to_wire(raw, verdict)
    };
    let results = heartbeats.iter().zip(items).map(result).collect();
    ok(&Results { results, directive: Some(directive), now: Some(time(now)) })
}

fn renewed(id: JobId, renewal: &LeaseRenewal) -> Extended {
    Extended {
        id: id.to_string(),
        state: JobStateName::Running,
        expires_at: times(renewal.expires_at),
        cancel_requested: renewal.cancel_requested,
        last_attempt: renewal.last_attempt,
        directive: None,
        now: None,
    }
}
