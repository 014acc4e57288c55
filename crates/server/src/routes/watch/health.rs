//! `GET /livez`, `GET /readyz`

use std::time::Duration;

use axum::extract::State;
use longshore_api::ErrorCode;
use longshore_api::watch::Health;
use tokio::time::timeout;

use crate::app::AppState;
use crate::wire::answer::{Answer, ok};
use crate::wire::problem::Failure;
use crate::wire::query::NoQuery;

/// A store that takes longer to look at nothing is not ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process answers.
pub(crate) async fn livez(_: NoQuery) -> Answer {
    ok(&Health { status: "ok".to_owned() })
}

/// It takes work: the store answers, and nobody has told the server to stop.
pub(crate) async fn readyz(State(app): State<AppState>, _: NoQuery) -> Answer {
    let not_ready = |why: &str| Failure::new(ErrorCode::StoreUnavailable, why);
    if app.stopping.is_cancelled() {
        return Err(not_ready("the server is stopping"));
    }
    if app.broken() {
        return Err(not_ready("the store has failed: a restart is needed"));
    }
    let looked = timeout(PATIENCE, app.ask(app.store.get(Vec::new()))).await;
    looked.map_err(|_| not_ready("the store does not answer"))??;
    ok(&Health { status: "ready".to_owned() })
}
