//! `POST /v1/claims`: lease jobs to a worker, with an optional long poll.

use longshore_api::Duration as WireDuration;
use longshore_api::work::{Claim, Settlement as WireSettlement};
use longshore_core::claim::ClaimOptions;
use longshore_core::directive::WorkerDirective;
use longshore_core::id::{JobType, QueueName, WorkerName, validate_printable};
use longshore_core::limits::{BATCH_ITEMS_MAX, CLAIM_TYPES_MAX, WORKER_VERSION_CHARS_MAX};
use longshore_core::refusal::Invalid;
use longshore_engine::{ClaimRequest, Settlement};
use serde_json::value::RawValue;

use super::settle::SettlementBatch;
use crate::access::CallerState as State;
use crate::background::worker_registry::ClaimInfo;
use crate::convert::claimed::{JOB_BYTES, write_claimed};
use crate::net::delivery;
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::json::{self, Object};
use crate::wire::json_writer::JsonWriter;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::ApiResult;

/// Longest wait of a long poll.
pub(crate) const WAIT_MAX: WireDuration = WireDuration::from_secs(60);

pub(crate) async fn claim(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> ApiResult {
    let (mut claim, settlements) = parse_body(&body)?;
    let wait = claim.wait.unwrap_or_default();
    let version = claim.version.take();
    version.as_deref().map_or(Ok(()), |text| validate_printable("version", text, WORKER_VERSION_CHARS_MAX))?;
    let request = parse(claim)?;
    let worker = request.terms.worker.clone();
    let directive = app.store.directive(worker.as_ref());
    // A worker is not seen at queues that its token does not see.
    let visible: Vec<QueueName>;
    let queues = if app.is_restricted() {
        visible = request.queues.iter().filter(|queue| app.can_see(queue)).cloned().collect();
        &visible
    } else {
        &request.queues
    };
    let info = ClaimInfo {
        worker: worker.as_ref(),
        version: version.as_deref(),
        queues,
        types: &request.types,
        can_claim: directive == WorkerDirective::Run,
    };
    let claim_guard = app.workers.claim_started(info, app.now());
    let (results, grant) = match settlements {
        Some((batch, valid)) if !batch.is_empty() => {
            let settled = app.call_store(app.store.settle_and_claim(valid, request)).await??;
            (Some((batch, settled.verdicts)), settled.grant)
        }
        empty => (empty.map(|(batch, _)| (batch, Vec::new())), app.claim(request, wait.as_std()).await?),
    };
    drop(claim_guard);
    app.workers.jobs_assigned(worker.as_ref(), grant.jobs().iter().map(|job| job.claimed.id), app.now());
    let payloads: usize = grant.jobs().iter().map(|job| job.payload.bytes().len()).sum();
    let verdicts = results.as_ref().map_or(0, |(batch, _)| batch.response_bytes());
    let mut json = JsonWriter::with_capacity(96 + verdicts + payloads + grant.jobs().len() * JOB_BYTES);
    json.object(|json| {
        if let Some((batch, verdicts)) = results {
            batch.write_results(json.field("results"), verdicts);
        }
        json.field("jobs").array(grant.jobs(), write_claimed);
        json.field("directive").word(app.store.directive(worker.as_ref()).as_str());
        json.field("now").time(app.now());
    });
    Ok(delivery::response(json.finish()?, grant))
}

/// A claim without its settlements, and these.
type ParsedClaim = (Claim<()>, Option<(SettlementBatch, Vec<Settlement>)>);

/// Parses the body in one pass. If something is invalid, the items are parsed one by one, to find
/// the error of each.
fn parse_body(body: &JsonBody) -> Result<ParsedClaim, ApiError> {
    let parsed: Option<Claim<Object<WireSettlement>>> = json::valid_object(body.text()?);
    if let Some(claim) = parsed {
        let (claim, settle) = split_settle(claim);
        match settle.map(SettlementBatch::of_parsed) {
            None => return Ok((claim, None)),
            Some(Some(batch)) => return Ok((claim, Some(batch))),
            Some(None) => {}
        }
    }
    let (claim, settle) = split_settle(body.required::<Claim<&RawValue>>()?);
    let settlements = settle.map(|items| SettlementBatch::parse("settle", &items)).transpose()?;
    Ok((claim, settlements))
}

fn split_settle<T>(claim: Claim<T>) -> (Claim<()>, Option<Vec<T>>) {
    let Claim { queues, settle, worker, version, limit, wait, types, lease, execution_timeout } = claim;
    (Claim { queues, settle: None, worker, version, limit, wait, types, lease, execution_timeout }, settle)
}

/// Validates a claim before the store is called.
fn parse(claim: Claim<()>) -> Result<ClaimRequest, ApiError> {
    if claim.wait.is_some_and(|wait| wait > WAIT_MAX) {
        return Err(ApiError::validation("wait", &format!("may be at most {WAIT_MAX}")));
    }
    let limit = usize::try_from(claim.limit.unwrap_or(1)).unwrap_or(usize::MAX);
    if !(1..=BATCH_ITEMS_MAX).contains(&limit) {
        return Err(ApiError::validation("limit", &format!("must be 1-{BATCH_ITEMS_MAX}")));
    }
    if !(1..=BATCH_ITEMS_MAX).contains(&claim.queues.len()) {
        return Err(ApiError::validation("queues", &format!("must name 1-{BATCH_ITEMS_MAX} queues")));
    }
    let types = claim.types.unwrap_or_default();
    if types.len() > CLAIM_TYPES_MAX {
        return Err(ApiError::validation("types", &format!("may name at most {CLAIM_TYPES_MAX} types")));
    }
    let queue = |(index, name): (usize, &String)| {
        QueueName::new(name).map_err(|invalid| invalid.at(format!("queues[{index}]")))
    };
    let job_type =
        |(index, name): (usize, &String)| JobType::new(name).map_err(|invalid| invalid.at(format!("types[{index}]")));
    let terms = ClaimOptions {
        worker: claim.worker.as_deref().map(WorkerName::new).transpose()?,
        lease: claim.lease,
        execution_timeout: claim.execution_timeout,
    };
    terms.check()?;
    Ok(ClaimRequest {
        queues: claim.queues.iter().enumerate().map(queue).collect::<Result<_, Invalid>>()?,
        limit,
        types: types.iter().enumerate().map(job_type).collect::<Result<_, Invalid>>()?,
        terms,
    })
}
