//! `GET /v1/jobs/{id}/inputs`

use axum::extract::State;
use longshore_api::workflow::{Input, Inputs};
use longshore_core::id::JobId;
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_store::JobRef;

use super::get::find;
use crate::app::AppState;
use crate::convert::enums::ToWire;
use crate::convert::raw;
use crate::wire::answer::{Answer, ok};
use crate::wire::path::JobPath;
use crate::wire::query::Query;

/// Jobs that are asked for at once, and bytes of results after which a page ends early.
const SLICE: usize = 100;
const PAGE_BYTES_MAX: usize = 16 << 20;

/// What its dependencies have left for a job, so that it can put them together.
pub(crate) async fn inputs(State(app): State<AppState>, JobPath(id): JobPath, mut query: Query) -> Answer {
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(BATCH_ITEMS_MAX);
    let from = query.up_to("cursor", 0, usize::MAX)?.unwrap_or(0);
    query.end()?;
    let job = find(&app, id).await?;
    let ids = job.dependencies.all();
    let (mut inputs, mut bytes, mut place) = (Vec::new(), 0, from);
    while inputs.len() < limit && bytes < PAGE_BYTES_MAX {
        let slice: Vec<JobId> = ids.iter().skip(place).take(SLICE.min(limit - inputs.len())).copied().collect();
        if slice.is_empty() {
            break;
        }
        let found = app.call_store(app.store.get(slice.iter().map(|id| JobRef::Id(*id)).collect())).await?;
        for (id, dependency) in slice.iter().zip(&found) {
            inputs.push(input(*id, dependency.as_deref()));
            place += 1;
            bytes += dependency.as_ref().and_then(|job| job.result.as_ref()).map_or(0, bytes::Bytes::len);
            if bytes >= PAGE_BYTES_MAX {
                break;
            }
        }
    }
    let next = (place < ids.len()).then(|| place.to_string());
    ok(&Inputs { inputs, next })
}

fn input(id: JobId, dependency: Option<&Job>) -> Input {
    Input {
        id: id.to_string(),
        reference: dependency.and_then(|job| Some(job.membership.as_ref()?.reference.to_string())),
        state: dependency.map(|job| job.kind().wire()),
        result: dependency.and_then(|job| job.result.as_ref()).map(raw::to_raw_json),
    }
}
