//! `PUT /v1/queues/{queue}`

use axum::extract::State;
use axum::http::StatusCode;
use longshore_api::queue::PutQueue;
use longshore_engine::{AdminCommand, AdminResponse};

use super::get::find;
use crate::app::AppState;
use crate::convert::enums::ToCore;
use crate::convert::queue::shown;
use crate::convert::settings::queue_overrides;
use crate::wire::answer::{Answer, json};
use crate::wire::body::JsonBody;
use crate::wire::path::QueuePath;
use crate::wire::query::NoQuery;

pub(crate) async fn put(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    _: NoQuery,
    body: JsonBody,
) -> Answer {
    let PutQueue { profile, settings } = body.object()?;
    let command = AdminCommand::PutQueue {
        queue: queue.clone(),
        profile: profile.map(ToCore::core),
        overrides: settings.map(|settings| Box::new(queue_overrides(settings))),
    };
    let put = app.admin(command).await.map_err(|failure| failure.inside("settings"))?;
    let created = put == AdminResponse::QueuePut { created: true };
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    json(status, &shown(&find(&app, queue).await?))
}
