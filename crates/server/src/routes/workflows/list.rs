//! `GET /v1/workflows`

use axum::extract::State;
use longshore_api::enums::WorkflowState;
use longshore_api::workflow::Workflows;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_store::WorkflowQuery;

use super::shown;
use crate::app::AppState;
use crate::convert::enums::ToCore;
use crate::wire::answer::{Answer, ok};
use crate::wire::query::Query;

const LIMIT_DEFAULT: usize = 100;

/// Newest first.
pub(crate) async fn list(State(app): State<AppState>, mut query: Query) -> Answer {
    let state = query.one_of("state", WorkflowState::WORDS, WorkflowState::parse)?.map(ToCore::core);
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let before = query.cursor()?;
    query.end()?;
    let page = app.call_store(app.store.workflows(WorkflowQuery { state, limit, before })).await?;
    ok(&Workflows {
        workflows: page.workflows.iter().map(|workflow| shown(workflow)).collect(),
        next: page.next.map(|number| number.to_string()),
    })
}
