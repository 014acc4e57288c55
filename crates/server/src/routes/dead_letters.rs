//! `/v1/dead-letters`: dead letters in groups.

use longshore_core::id::QueueName;

use crate::access::CallerState as State;
use crate::state::AppState;
use crate::wire::query::Query;
use crate::wire::response::{ApiResult, ok};

/// `GET /v1/dead-letters/groups`: the 200 largest groups by error code and message shape.
pub(crate) async fn groups(State(app): State<AppState>, mut query: Query) -> ApiResult {
    let queue = query.take("queue").map(|name| QueueName::new(&name)).transpose()?;
    query.end()?;
    let scope = app.queue_scope();
    let admits = |name: &QueueName| {
        queue.as_ref().is_none_or(|queue| queue == name) && scope.as_ref().is_none_or(|scope| scope.covers(name))
    };
    let mark = app.call_store(app.store.watch_events()).await?;
    ok(&app.dead_letters.groups(&*app.store, mark, admits).await)
}
