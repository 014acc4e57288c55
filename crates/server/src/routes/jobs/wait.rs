//! `GET /v1/jobs/{id}/wait`

use axum::extract::State;
use axum::http::StatusCode;
use longshore_api::Duration;
use tokio::time::{Instant, sleep_until};

use super::get::find;
use crate::app::AppState;
use crate::convert::job::record;
use crate::routes::leases::claim::WAIT_MAX;
use crate::wire::answer::{Answer, json};
use crate::wire::path::JobPath;
use crate::wire::query::Query;

const WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// 200 with the job once it has ended, 202 with the job as it is when the time is up.
pub(crate) async fn wait(State(app): State<AppState>, JobPath(id): JobPath, mut query: Query) -> Answer {
    let patience = query.duration("timeout", WAIT_MAX)?.unwrap_or(WAIT_DEFAULT);
    query.end()?;
    let deadline = Instant::now() + patience.as_std();
    let watch = app.endings.watch(id);
    let bell = watch.notify();
    loop {
        // From here on an end is heard, so that it cannot fall between the look and the wait.
        let mut rung = std::pin::pin!(bell.notified());
        rung.as_mut().enable();
        let job = find(&app, id).await?;
        if job.state.terminal() {
            return json(StatusCode::OK, &record(&job));
        }
        tokio::select! {
            () = rung => {}
            () = sleep_until(deadline) => break,
            () = app.stopping.cancelled() => break,
        }
    }
    let job = find(&app, id).await?;
    let status = if job.state.terminal() { StatusCode::OK } else { StatusCode::ACCEPTED };
    json(status, &record(&job))
}
