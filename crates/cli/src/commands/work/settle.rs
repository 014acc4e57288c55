//! Settles a lease, with retries.

use std::sync::Arc;
use std::time::Duration;

use longshore::monotonic;
use longshore::{Client, Error};
use longshore_api::enums::State;
use longshore_api::work::{Complete, Fail, JobState, Release, ReportedError};
use longshore_api::{ErrorCode, RetryAdvice};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::sleep;

use super::connectivity::Connectivity;
use super::worker::{WorkerPhase, abandoning};
use crate::terminal::output::Output;

pub(super) enum SettlementRequest {
    Complete(Option<Box<RawValue>>),
    Fail(ReportedError),
    /// A failure after a cancel request: the server cancels the job.
    Cancelled(ReportedError),
    /// Makes the job ready again, without counting an attempt.
    Release,
    /// The lease is lost: there is no request.
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

/// Response to a settlement.
pub(super) struct SettleResult {
    pub(super) state: Option<State>,
    pub(super) detail: Option<String>,
}

pub(super) struct Reporter {
    pub(super) client: Client,
    pub(super) output: Output,
    pub(super) id: String,
    pub(super) token: String,
    pub(super) phase: watch::Receiver<WorkerPhase>,
    pub(super) connectivity: Arc<Connectivity>,
}

const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// After this time the lease has usually expired.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

impl Reporter {
    /// Sends the settlement until the server accepts or refuses it, which is safe with one token.
    pub(super) async fn settle(self, mut report: SettlementRequest) -> SettleResult {
        let deadline = monotonic() + SETTLE_TIMEOUT;
        let detail = match &report {
            SettlementRequest::Nothing => Some("the lease was lost; the program was killed".to_owned()),
            SettlementRequest::Fail(error) | SettlementRequest::Cancelled(error) => error.message.clone(),
            SettlementRequest::Complete(_) | SettlementRequest::Release => None,
        };
        let mut backoff = BACKOFF_FIRST;
        loop {
            let Some(answer) = self.send_once(&report).await else { return SettleResult { state: None, detail } };
            self.connectivity.observe(&answer);
            let error = match answer {
                Ok(done) => return SettleResult { state: Some(done.state), detail },
                Err(error) => error,
            };
            match (error.code(), &report) {
                // The work is done: the job completes without its result.
                (
                    Some(ErrorCode::PayloadTooLarge | ErrorCode::BadRequest | ErrorCode::Validation),
                    SettlementRequest::Complete(Some(_)),
                ) => {
                    self.output.info(&format!("{}: completing without the result: {error}", self.id));
                    report = SettlementRequest::Complete(None);
                    continue;
                }
                // Some profiles have no release: report a failure.
                (Some(ErrorCode::IllegalTransition), SettlementRequest::Release) => {
                    report = SettlementRequest::Fail(worker_stopped_error());
                    continue;
                }
                _ => {}
            }
            if error.retry() == RetryAdvice::Never || monotonic() >= deadline {
                return SettleResult { state: None, detail: Some(format!("cannot settle the lease: {error}")) };
            }
            tokio::select! {
                () = sleep(backoff) => {}
                () = abandoning(&self.phase) => {
                    // One last try; without success the lease expires.
                    sleep(backoff).await;
                    let state = self.send_once(&report).await.and_then(|answer| answer.ok().map(|done| done.state));
                    let failed = state.is_none().then(|| format!("cannot settle the lease: {error}"));
                    return SettleResult { state, detail: failed.or(detail) };
                }
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    async fn send_once(&self, report: &SettlementRequest) -> Option<Result<JobState, Error>> {
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
