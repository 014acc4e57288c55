//! `DELETE /v1/jobs/{id}`

use axum::extract::State;
use longshore_engine::AdminCommand;

use crate::app::AppState;
use crate::wire::answer::{Answer, no_content};
use crate::wire::body::NoBody;
use crate::wire::path::JobPath;
use crate::wire::query::NoQuery;

pub(crate) async fn delete(State(app): State<AppState>, JobPath(id): JobPath, _: NoQuery, _: NoBody) -> Answer {
    app.admin(AdminCommand::Delete { id }).await?;
    no_content()
}
