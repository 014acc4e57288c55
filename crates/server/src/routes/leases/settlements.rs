//! `POST /v1/settlements`

use axum::extract::State;
use longshore_api::work::{JobState, Results, Settlement as Given, Settlements, Verdict};
use longshore_core::id::JobId;
use longshore_core::limits::BATCH_ITEMS_MAX;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::app::AppState;
use crate::convert::enums::ToWire;
use crate::convert::settlement::settlement;
use crate::wire::answer::{Answer, ok};
use crate::wire::body::JsonBody;
use crate::wire::json;
use crate::wire::problem::{ApiError, ItemError};
use crate::wire::query::NoQuery;

/// Each member has its own verdict: one that cannot be read does not hold up the others.
pub(crate) async fn settlements(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> Answer {
    let Settlements::<&RawValue> { settlements } = body.required()?;
    check_size("settlements", settlements.len())?;
    let read = |member: &&RawValue| json::object::<Given>(member.get()).and_then(settlement);
    let members: Vec<_> = settlements.iter().map(read).collect();
    let asked: Vec<_> = members.iter().filter_map(|member| member.as_ref().ok()).cloned().collect();
    let ids: Vec<JobId> = asked.iter().map(|settlement| settlement.id).collect();
    let verdicts = if asked.is_empty() { Vec::new() } else { app.call_store(app.store.settle(asked)).await? };
    let mut verdicts = ids.into_iter().zip(verdicts);
    let result = |(raw, member): (&&RawValue, Result<_, ItemError>)| {
        let verdict = member.and_then(|_| {
            let (id, verdict) = verdicts.next().ok_or_else(no_verdict)?;
            Ok(JobState { id: id.to_string(), state: verdict?.wire(), cancel_requested: None })
        });
        told(raw, verdict)
    };
    ok(&Results { results: settlements.iter().zip(members).map(result).collect(), now: None })
}

pub(crate) fn check_size(field: &str, members: usize) -> Result<(), ApiError> {
    if members <= BATCH_ITEMS_MAX {
        return Ok(());
    }
    Err(ApiError::validation(field, &format!("may be at most {BATCH_ITEMS_MAX}")))
}

pub(crate) fn no_verdict() -> ItemError {
    ItemError::new(longshore_api::ErrorCode::Internal, "the store said nothing about it")
}

/// A member's result; a refusal names the job as the request did.
pub(crate) fn told<T>(raw: &RawValue, verdict: Result<T, ItemError>) -> Verdict<T> {
    #[derive(Deserialize)]
    struct Named {
        id: String,
    }
    verdict.map_or_else(
        |failure| Verdict::Refused {
            id: serde_json::from_str(raw.get()).ok().map(|named: Named| named.id),
            code: failure.code.code().to_owned(),
            detail: failure.detail,
            field: failure.field,
            allowed: failure.allowed,
        },
        Verdict::Done,
    )
}
