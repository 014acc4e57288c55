//! `GET /livez`, `GET /readyz`

use std::time::Duration;

use axum::extract::State;
use longshore_api::ErrorCode;
use longshore_api::system::Health;
use longshore_store::StoreHealth;
use tokio::time::timeout;

use crate::app::AppState;
use crate::wire::answer::{Answer, ok};
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;

/// A store that takes longer to look at nothing is not ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process answers.
pub(crate) async fn livez(_: NoQuery) -> Answer {
    ok(&Health { status: "ok".to_owned() })
}

/// It takes work: the store takes new jobs, and the server was not told to stop.
pub(crate) async fn readyz(State(app): State<AppState>, _: NoQuery) -> Answer {
    let not_ready = |why: &str| ApiError::new(ErrorCode::StoreUnavailable, why);
    if app.stopping.is_cancelled() {
        return Err(not_ready("the server is stopping"));
    }
    if app.store_failed() {
        return Err(not_ready("the store has failed: a restart is needed"));
    }
    match store_health(&app).await.refusing {
        None => ok(&Health { status: "ready".to_owned() }),
        Some(why) => Err(not_ready(&format!("new jobs are refused: {why}"))),
    }
}

/// What the store says of itself; where it does not answer, that is why new jobs are refused.
pub(crate) async fn store_health(app: &AppState) -> StoreHealth {
    let refusing = |why: String| StoreHealth { refusing: Some(why), ..StoreHealth::default() };
    match timeout(PATIENCE, app.store.health()).await {
        Ok(Ok(health)) => health,
        Ok(Err(error)) => {
            app.on_store_error(&error);
            refusing(error.cause())
        }
        Err(_) => refusing(format!("the store does not answer within {} s", PATIENCE.as_secs())),
    }
}
