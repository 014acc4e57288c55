//! `PATCH /v1/jobs/{id}`

use axum::extract::State;
use longshore_api::admin::Patch;
use longshore_core::edit::Edit;
use longshore_core::id::JobType;
use longshore_core::refusal::Invalid;
use longshore_engine::AdminCommand;

use super::get::find;
use crate::app::AppState;
use crate::convert::enums::ToCore;
use crate::convert::job::record;
use crate::convert::new_job::tags;
use crate::convert::shared;
use crate::wire::answer::{Answer, ok};
use crate::wire::body::JsonBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn patch(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, body: JsonBody) -> Answer {
    let edit = read(body.object()?)?;
    app.admin(AdminCommand::Edit { id, edit }).await?;
    ok(&record(&*find(&app, id).await?))
}

fn read(given: Patch) -> Result<Edit, Invalid> {
    Ok(Edit {
        priority: given.priority.map(ToCore::core),
        job_type: given.job_type.as_deref().map(JobType::new).transpose()?,
        tags: given.tags.map(|given| tags(Some(given))).transpose()?,
        correlation_id: given.correlation_id.map(shared),
        callback_url: given.callback_url.map(shared),
        retry_limit: given.retry.and_then(|retry| retry.limit),
    })
}
