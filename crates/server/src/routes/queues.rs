//! `/v1/queues`: list, create or change, read, pause, resume, delete.

use axum::http::StatusCode;
use longshore_api::queue::{PutQueue, Queues};
use longshore_core::id::QueueName;
use longshore_core::refusal::Refusal;
use longshore_engine::{AdminCommand, AdminResponse, DeleteQueue, QueueDeleteMode};
use longshore_store::QueueStats;

use crate::access::CallerState as State;
use crate::convert::queue::to_wire;
use crate::convert::settings::queue_overrides;
use crate::state::AppState;
use crate::wire::body::{JsonBody, NoBody};
use crate::wire::path::QueuePath;
use crate::wire::problem::ApiError;
use crate::wire::query::{NoQuery, Query};
use crate::wire::response::{ApiResult, json, no_content, ok};

/// `GET /v1/queues`
pub(crate) async fn list(State(app): State<AppState>, _: NoQuery) -> ApiResult {
    let queues = app.call_store(app.store.queues()).await?;
    ok(&Queues { queues: queues.iter().map(to_wire).collect() })
}

/// `GET /v1/queues/{queue}`
pub(crate) async fn get(State(app): State<AppState>, QueuePath(queue): QueuePath, _: NoQuery) -> ApiResult {
    ok(&to_wire(&find(&app, queue).await?))
}

/// `PUT /v1/queues/{queue}`: 201 creates a queue, 200 changes it.
pub(crate) async fn put(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    _: NoQuery,
    body: JsonBody,
) -> ApiResult {
    let PutQueue { profile, settings } = body.object()?;
    let command = AdminCommand::PutQueue {
        queue: queue.clone(),
        profile,
        overrides: settings.map(|settings| Box::new(queue_overrides(settings))),
    };
    let response = app.admin(command).await.map_err(|error| error.inside("settings"))?;
    let created = response == AdminResponse::QueuePut { created: true };
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    json(status, &to_wire(&find(&app, queue).await?))
}

/// `POST /v1/queues/{queue}/pause`
pub(crate) async fn pause(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    app.admin(AdminCommand::PauseQueue { queue: queue.clone() }).await?;
    ok(&to_wire(&find(&app, queue).await?))
}

/// `POST /v1/queues/{queue}/resume`
pub(crate) async fn resume(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    _: NoQuery,
    _: NoBody,
) -> ApiResult {
    app.admin(AdminCommand::ResumeQueue { queue: queue.clone() }).await?;
    ok(&to_wire(&find(&app, queue).await?))
}

/// `DELETE /v1/queues/{queue}`: with `force`, also a queue that has jobs.
pub(crate) async fn delete(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    mut query: Query,
    _: NoBody,
) -> ApiResult {
    let force = query.flag("force")?;
    query.end()?;
    let how = if force { DeleteQueue::Force(QueueDeleteMode::Cancel) } else { DeleteQueue::IfEmpty };
    app.admin(AdminCommand::DeleteQueue { queue, how }).await?;
    no_content()
}

async fn find(app: &AppState, queue: QueueName) -> Result<QueueStats, ApiError> {
    let report = app.call_store(app.store.queue(queue)).await?;
    report.ok_or_else(|| Refusal::QueueNotFound.into())
}
