//! `GET /v1/queues`

use axum::extract::State;
use longshore_api::queue::Queues;

use crate::app::AppState;
use crate::convert::queue::shown;
use crate::wire::answer::{Answer, ok};
use crate::wire::query::NoQuery;

pub(crate) async fn list(State(app): State<AppState>, _: NoQuery) -> Answer {
    let queues = app.call_store(app.store.queues()).await?;
    ok(&Queues { queues: queues.iter().map(shown).collect() })
}
