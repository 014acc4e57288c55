//! What all single settlements share.

use longshore_api::work::JobState;
use longshore_core::id::JobId;
use longshore_core::settle::Outcome;
use longshore_engine::Settlement;

use crate::app::AppState;
use crate::convert::enums::ToWire;
use crate::convert::settlement::token;
use crate::wire::answer::{Answer, ok};
use crate::wire::problem::ApiError;

/// Ends a lease and tells the state that the job is in now.
pub(crate) async fn settle(app: &AppState, id: JobId, lease: Option<&str>, outcome: Outcome) -> Answer {
    let settlement = Settlement { id, token: token(lease), outcome };
    let verdicts = app.call_store(app.store.settle(vec![settlement])).await?;
    let verdict = verdicts.into_iter().next().ok_or_else(|| ApiError::bad_request("nothing was settled"))?;
    ok(&JobState { id: id.to_string(), state: verdict?.wire(), cancel_requested: None })
}
