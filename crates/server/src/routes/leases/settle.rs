//! The ends of a lease: complete, fail, snooze, release; one at a time or as a batch.

use axum::http::StatusCode;
use longshore_api::ErrorCode;
use longshore_api::work::{
    Complete, Fail, JobState, Release, Settlement as WireSettlement, Settlements, Snooze, Verdict,
};
use longshore_core::id::JobId;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_engine::Settlement;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::access::CallerState as State;
use crate::convert::raw;
use crate::convert::settlement::{reported, settlement, token};
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::json::{self, Object};
use crate::wire::json_writer::JsonWriter;
use crate::wire::path::JobPath;
use crate::wire::problem::{ApiError, ItemError};
use crate::wire::query::NoQuery;
use crate::wire::response::{ApiResult, json_bytes};

/// `POST /v1/jobs/{id}/complete`
pub(crate) async fn complete(
    State(app): State<AppState>,
    JobPath(id): JobPath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let Complete { lease, result, progress } = body.object()?;
    let outcome = Outcome::Complete { result: result.map(raw::bytes), progress: progress.map(raw::bytes) };
    settle(&app, id, lease.as_deref(), outcome).await
}

/// `POST /v1/jobs/{id}/fail`
pub(crate) async fn fail(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> ApiResult {
    let Fail { lease, error } = body.object()?;
    settle(&app, id, lease.as_deref(), Outcome::Fail(reported(error))).await
}

/// `POST /v1/jobs/{id}/snooze`
pub(crate) async fn snooze(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> ApiResult {
    let Snooze { lease, delay } = body.object()?;
    settle(&app, id, lease.as_deref(), Outcome::Snooze { delay }).await
}

/// `POST /v1/jobs/{id}/release`
pub(crate) async fn release(
    State(app): State<AppState>,
    JobPath(id): JobPath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let Release { lease } = body.object()?;
    settle(&app, id, lease.as_deref(), Outcome::Release).await
}

/// Ends a lease. Returns the new state of the job.
async fn settle(app: &AppState, id: JobId, lease: Option<&str>, outcome: Outcome) -> ApiResult {
    let settlement = Settlement { id, token: token(lease), outcome };
    let verdicts = app.call_store(app.store.settle(vec![settlement])).await?;
    let verdict = verdicts.into_iter().next().ok_or_else(no_verdict)?;
    let (mut json, state) = (JsonWriter::with_capacity(VERDICT_BYTES), verdict?);
    write_state(&mut json, id, state);
    Ok(json_bytes(StatusCode::OK, json.finish()?))
}

/// `POST /v1/settlements`: each item has its own verdict; an invalid one does not affect others.
pub(crate) async fn settlements(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> ApiResult {
    let parsed = json::valid_object(body.text()?)
        .and_then(|request: Settlements<Object<WireSettlement>>| SettlementBatch::of_parsed(request.settlements));
    let (batch, valid) = match parsed {
        Some(batch) => batch,
        None => SettlementBatch::parse("settlements", &body.required::<Settlements<&RawValue>>()?.settlements)?,
    };
    let verdicts = if valid.is_empty() { Vec::new() } else { app.call_store(app.store.settle(valid)).await? };
    let mut json = JsonWriter::with_capacity(16 + batch.response_bytes());
    json.object(|json| batch.write_results(json.field("results"), verdicts));
    Ok(json_bytes(StatusCode::OK, json.finish()?))
}

/// The settlements of a request: each item is valid, or has its error.
pub(super) struct SettlementBatch(Vec<Result<JobId, InvalidItem>>);

/// An item that the store does not see, with the id that it names.
struct InvalidItem {
    id: Option<String>,
    error: ItemError,
}

impl SettlementBatch {
    /// Converts items that were parsed together with their request, in one pass. Returns `None` if
    /// one is invalid, or if there are too many.
    pub(super) fn of_parsed(items: Vec<Object<WireSettlement>>) -> Option<(Self, Vec<Settlement>)> {
        if items.len() > BATCH_ITEMS_MAX {
            return None;
        }
        let valid: Vec<Settlement> =
            items.into_iter().map(|Object(item)| settlement(item).ok()).collect::<Option<_>>()?;
        Some((Self(valid.iter().map(|settlement| Ok(settlement.id)).collect()), valid))
    }

    /// Parses the items one by one. Returns the batch, and the valid settlements for the store.
    pub(super) fn parse(field: &str, raw: &[&RawValue]) -> Result<(Self, Vec<Settlement>), ApiError> {
        check_size(field, raw.len())?;
        let mut valid = Vec::with_capacity(raw.len());
        let parse = |item: &&RawValue| {
            let parsed = json::object::<WireSettlement>(item.get()).and_then(settlement);
            parsed.map_err(|error| InvalidItem { id: named_job(item), error }).map(|settlement| {
                let id = settlement.id;
                valid.push(settlement);
                id
            })
        };
        Ok((Self(raw.iter().map(parse).collect()), valid))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns about how many bytes the results take.
    pub(super) fn response_bytes(&self) -> usize {
        self.0.len() * VERDICT_BYTES
    }

    /// Writes the store's verdicts on valid settlements and the errors of the others.
    pub(super) fn write_results(self, json: &mut JsonWriter, verdicts: Vec<Result<StateKind, Refusal>>) {
        let mut verdicts = verdicts.into_iter();
        json.array(self.0, |json, item| {
            let verdict = item.and_then(|id| {
                let verdict =
                    verdicts.next().map_or_else(|| Err(no_verdict()), |verdict| verdict.map_err(ItemError::from));
                verdict.map(|state| (id, state)).map_err(|error| InvalidItem { id: Some(id.to_string()), error })
            });
            match verdict {
                Ok((id, state)) => write_state(json, id, state),
                Err(InvalidItem { id, error }) => json.value(&refused::<JobState>(id, error)),
            }
        });
    }
}

/// Bytes of a written verdict, about.
const VERDICT_BYTES: usize = 72;

/// Writes the state of a settled job as the wire type `JobState` describes it.
fn write_state(json: &mut JsonWriter, id: JobId, state: StateKind) {
    json.object(|json| {
        json.field("state").word(state.as_str());
        json.field("id").uuid(id.as_bytes());
    });
}

pub(super) fn check_size(field: &str, items: usize) -> Result<(), ApiError> {
    if items <= BATCH_ITEMS_MAX {
        return Ok(());
    }
    Err(ApiError::validation(field, &format!("may be at most {BATCH_ITEMS_MAX}")))
}

/// The store returned fewer verdicts than items: a defect.
pub(super) fn no_verdict() -> ItemError {
    ItemError::new(ErrorCode::Internal, "internal error: the store returned no verdict")
}

/// Converts the verdict on an item. A refusal names the job as the request did.
pub(super) fn to_wire<T>(raw: &RawValue, verdict: Result<T, ItemError>) -> Verdict<T> {
    verdict.map_or_else(|error| refused(named_job(raw), error), Verdict::Done)
}

/// Returns the id in the text of an item, whatever else is wrong with it.
fn named_job(raw: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct JobIdOnly {
        id: String,
    }
    serde_json::from_str(raw.get()).ok().map(|item: JobIdOnly| item.id)
}

fn refused<T>(id: Option<String>, error: ItemError) -> Verdict<T> {
    let ItemError { code, detail, field, allowed } = error;
    Verdict::Refused { id, code: code.code().to_owned(), detail, field, allowed }
}
