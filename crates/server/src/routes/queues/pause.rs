//! `POST /v1/queues/{queue}/pause`, `POST /v1/queues/{queue}/resume`

use axum::extract::State;
use longshore_engine::AdminCommand;

use super::get::find;
use crate::app::AppState;
use crate::convert::queue::shown;
use crate::wire::answer::{Answer, ok};
use crate::wire::body::NoBody;
use crate::wire::path::QueuePath;
use crate::wire::query::NoQuery;

pub(crate) async fn pause(State(app): State<AppState>, QueuePath(queue): QueuePath, _: NoQuery, _: NoBody) -> Answer {
    app.admin(AdminCommand::PauseQueue { queue: queue.clone() }).await?;
    ok(&shown(&find(&app, queue).await?))
}

pub(crate) async fn resume(State(app): State<AppState>, QueuePath(queue): QueuePath, _: NoQuery, _: NoBody) -> Answer {
    app.admin(AdminCommand::ResumeQueue { queue: queue.clone() }).await?;
    ok(&shown(&find(&app, queue).await?))
}
