//! Telling the server how a job ended, as often as it takes.

use std::sync::Arc;
use std::time::Duration;

use longshore_api::enums::State;
use longshore_api::work::{Complete, Fail, JobState, Release, ReportedError};
use longshore_api::{ErrorCode, RetryAdvice};
use longshore_client::{Client, Error};
use longshore_store::clock::monotonic;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::sleep;

use super::connectivity::Connectivity;
use super::worker::{Phase, abandoning};
use crate::terminal::output::Output;

pub(super) enum SettlementRequest {
    Complete(Option<Box<RawValue>>),
    Fail(ReportedError),
    /// A failure that the server turns into the cancel that was asked for.
    Cancelled(ReportedError),
    /// Given back, nothing counted.
    Release,
    /// The lease is lost: there is nobody to tell.
    Nothing,
}

impl SettlementRequest {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Complete(_) => "completed",
            Self::Fail(_) => "failed",
            Self::Cancelled(_) => "cancelled",
            Self::Release => "released",
            Self::Nothing => "lost",
        }
    }
}

/// What the server made of it.
pub(super) struct SettleResult {
    pub(super) state: Option<State>,
    pub(super) detail: Option<String>,
}

pub(super) struct Reporter {
    pub(super) client: Client,
    pub(super) screen: Output,
    pub(super) id: String,
    pub(super) token: String,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) connectivity: Arc<Connectivity>,
}

const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(2);
/// A server that is away for longer has given the job to somebody else by then.
const PATIENCE: Duration = Duration::from_secs(60);

impl Reporter {
    /// A report may be repeated with the same token.
    pub(super) async fn tell(self, mut report: SettlementRequest) -> SettleResult {
        let give_up = monotonic() + PATIENCE;
        let detail = match &report {
            SettlementRequest::Nothing => Some("the lease was lost; the program was killed".to_owned()),
            SettlementRequest::Fail(error) | SettlementRequest::Cancelled(error) => error.message.clone(),
            SettlementRequest::Complete(_) | SettlementRequest::Release => None,
        };
        let mut backoff = BACKOFF_FIRST;
        loop {
            let Some(answer) = self.once(&report).await else { return SettleResult { state: None, detail } };
            self.connectivity.observe(&answer);
            let error = match answer {
                Ok(done) => return SettleResult { state: Some(done.state), detail },
                Err(error) => error,
            };
            match (error.code(), &report) {
                // The work is done: a result that cannot be kept is no reason to do it again.
                (
                    Some(ErrorCode::PayloadTooLarge | ErrorCode::BadRequest | ErrorCode::Validation),
                    SettlementRequest::Complete(Some(_)),
                ) => {
                    self.screen.info(&format!("{}: the result is left out: {error}", self.id));
                    report = SettlementRequest::Complete(None);
                    continue;
                }
                // Some profiles take nothing back: there it counts as a failure.
                (Some(ErrorCode::IllegalTransition), SettlementRequest::Release) => {
                    report = SettlementRequest::Fail(worker_stopped_error());
                    continue;
                }
                _ => {}
            }
            if error.retry() == RetryAdvice::Never || monotonic() >= give_up {
                return SettleResult { state: None, detail: Some(format!("the server did not take it: {error}")) };
            }
            tokio::select! {
                () = sleep(backoff) => {}
                () = abandoning(&self.phase) => {
                    // One more try, then the lease has to run out by itself.
                    sleep(backoff).await;
                    let state = self.once(&report).await.and_then(|answer| answer.ok().map(|done| done.state));
                    let lost = state.is_none().then(|| format!("the server could not be told: {error}"));
                    return SettleResult { state, detail: lost.or(detail) };
                }
            }
            backoff = (backoff * 2).min(BACKOFF_MOST);
        }
    }

    async fn once(&self, report: &SettlementRequest) -> Option<Result<JobState, Error>> {
        let lease = Some(self.token.clone());
        match report {
            SettlementRequest::Complete(result) => {
                let complete = Complete { lease, result: result.clone(), progress: None };
                Some(self.client.complete(&self.id, &complete).await)
            }
            SettlementRequest::Fail(error) | SettlementRequest::Cancelled(error) => {
                Some(self.client.fail(&self.id, &Fail { lease, error: error.clone() }).await)
            }
            SettlementRequest::Release => Some(self.client.release(&self.id, &Release { lease }).await),
            SettlementRequest::Nothing => None,
        }
    }
}

fn worker_stopped_error() -> ReportedError {
    ReportedError {
        category: longshore_api::enums::ReportedCategory::System,
        message: Some("the worker was stopped".to_owned()),
        code: Some("worker_stopped".to_owned()),
        cause: None,
        retry_after: None,
        unrecoverable: None,
    }
}
