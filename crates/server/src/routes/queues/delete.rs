//! `DELETE /v1/queues/{queue}`

use axum::extract::State;
use longshore_engine::{AdminCommand, DeleteQueue, QueueDeleteMode};

use crate::app::AppState;
use crate::wire::answer::{Answer, no_content};
use crate::wire::body::NoBody;
use crate::wire::path::QueuePath;
use crate::wire::query::Query;

pub(crate) async fn delete(
    State(app): State<AppState>,
    QueuePath(queue): QueuePath,
    mut query: Query,
    _: NoBody,
) -> Answer {
    let force = query.flag("force")?;
    query.end()?;
    let how = if force { DeleteQueue::Force(QueueDeleteMode::Cancel) } else { DeleteQueue::IfEmpty };
    app.admin(AdminCommand::DeleteQueue { queue, how }).await?;
    no_content()
}
