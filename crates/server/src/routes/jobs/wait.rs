//! `GET /v1/jobs/{id}/wait`: long poll for the end of a job.

use axum::http::StatusCode;
use longshore_api::Duration;
use tokio::time::{Instant, sleep_until};

use super::get::find;
use super::record::record_of;
use crate::access::CallerState as State;
use crate::routes::leases::claim::WAIT_MAX;
use crate::state::AppState;
use crate::wire::path::JobPath;
use crate::wire::query::Query;
use crate::wire::response::{ApiResult, json};

const WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// 200 with the job once it has ended, 202 with its present state at the timeout.
pub(crate) async fn wait(State(app): State<AppState>, JobPath(id): JobPath, mut query: Query) -> ApiResult {
    let timeout = query.duration("timeout", WAIT_MAX)?.unwrap_or(WAIT_DEFAULT);
    query.end()?;
    let deadline = Instant::now() + timeout.as_std();
    let watch = app.completion_waiters.watch(id);
    let notify = watch.notify();
    loop {
        // Registered before the read, so that an end between read and wait is not missed.
        let mut notified = std::pin::pin!(notify.notified());
        notified.as_mut().enable();
        let job = find(&app, id).await?;
        if job.state.terminal() {
            return json(StatusCode::OK, &record_of(&app, job).await?);
        }
        tokio::select! {
            () = notified => {}
            () = sleep_until(deadline) => break,
            () = app.stopping.cancelled() => break,
            () = app.token_ended() => break,
        }
    }
    app.check_token()?;
    let job = find(&app, id).await?;
    let status = if job.state.terminal() { StatusCode::OK } else { StatusCode::ACCEPTED };
    json(status, &record_of(&app, job).await?)
}
