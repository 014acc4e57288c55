//! Runs one job: program, heartbeats, deadlines, settlement.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longshore::Client;
use longshore::monotonic;
use longshore_api::enums::{ReportedCategory, State};
use longshore_api::work::{ClaimedJob, ReportedError};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::WorkOptions;
use super::connectivity::Connectivity;
use super::heartbeat::{LeaseEvent, LeaseKeeper};
use super::program::{Program, ProgramExit};
use super::settle::{Reporter, SettleResult, SettlementRequest};
use super::worker::{WorkerPhase, abandoning};
use crate::terminal::output::Output;

pub(super) struct AttemptRunner {
    pub(super) options: Arc<WorkOptions>,
    pub(super) client: Client,
    pub(super) output: Output,
    /// When the claim was sent, by the monotonic clock. The lease starts later.
    pub(super) claimed_at: Duration,
    pub(super) phase: watch::Receiver<WorkerPhase>,
    pub(super) connectivity: Arc<Connectivity>,
}

/// Result of an attempt, as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct AttemptReport {
    id: String,
    queue: String,
    #[serde(rename = "type")]
    job_type: String,
    attempt: u32,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// State of the job after the settlement.
    state: Option<State>,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl fmt::Display for AttemptReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, job_type, attempt, outcome, seconds, .. } = self;
        write!(f, "{id}  {outcome:<10}  {job_type}, attempt {attempt}, {seconds:.2} s")?;
        if let Some(state) = self.state {
            write!(f, ", now {state}")?;
        }
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

/// Why the worker stopped a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    Cancelled,
    TimedOut,
    LeaseLost,
    Abandoned,
}

/// Limits of the job, which the response to a claim does not have.
#[derive(Clone, Copy, Debug, Default)]
struct EffectiveLimits {
    lease: Option<Duration>,
    execution_timeout: Option<Duration>,
}

impl AttemptRunner {
    pub(super) async fn run(self, job: ClaimedJob) -> AttemptReport {
        let started = monotonic();
        let limits = self.limits(&job).await;
        let reporter = Reporter {
            client: self.client.clone(),
            output: self.output,
            id: job.id.clone(),
            token: job.lease.token.clone(),
            phase: self.phase.clone(),
            connectivity: Arc::clone(&self.connectivity),
        };
        let (report, exit_code) = match Program::start(&self.options, &job, self.client.url(), self.output) {
            Ok(program) => {
                let keeper = LeaseKeeper::new(&self.client, &job, limits.lease, self.claimed_at, &self.connectivity);
                let (ended, stop_reason) = self.supervise(program, keeper, &limits).await;
                (self.outcome_of(&ended, stop_reason), ended.code)
            }
            Err(error) => {
                let message = format!("cannot start the program: {error}");
                (SettlementRequest::Fail(reported(ReportedCategory::System, "cannot_start", message)), None)
            }
        };
        let outcome = report.as_str();
        let SettleResult { state, detail } = reporter.settle(report).await;
        AttemptReport {
            id: job.id,
            queue: job.queue,
            job_type: job.job_type,
            attempt: job.attempt,
            outcome,
            exit_code,
            state,
            seconds: (monotonic() - started).as_secs_f64(),
            detail,
        }
    }

    /// Fetches the length of the lease and the execution timeout. The claim has the expiry by the
    /// server's clock; a length does not depend on the difference of the clocks.
    async fn limits(&self, job: &ClaimedJob) -> EffectiveLimits {
        let positive = |length: longshore_api::Duration| (length.0 > 0).then(|| length.as_std());
        let (own_lease, own_timeout) = (self.options.lease, self.options.execution_timeout.and_then(positive));
        let fetched = timeout(Duration::from_secs(2), self.client.job(&job.id)).await;
        let Ok(Ok(record)) = fetched else {
            return EffectiveLimits { lease: own_lease.and_then(positive), execution_timeout: own_timeout };
        };
        let of_job = record.policy.execution_timeout.and_then(positive);
        let shorter = match (of_job, own_timeout) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        EffectiveLimits { lease: own_lease.or(record.policy.lease).and_then(positive), execution_timeout: shorter }
    }

    /// Waits for the end of the program, and stops it on cancel, timeout, lost lease or shutdown.
    async fn supervise(
        &self,
        mut program: Program,
        mut keeper: LeaseKeeper,
        limits: &EffectiveLimits,
    ) -> (ProgramExit, Option<StopReason>) {
        let far = Duration::from_secs(86_400 * 365);
        let mut deadline = Instant::now() + limits.execution_timeout.unwrap_or(far);
        let mut kill_at = Instant::now() + far;
        let mut stop_reason: Option<StopReason> = None;
        let grace = self.options.grace.as_std();
        loop {
            let terminate = tokio::select! {
                biased;
                ended = program.wait() => return (ended, stop_reason),
                event = keeper.next() => match event {
                    LeaseEvent::CancelRequested => Some(StopReason::Cancelled),
                    LeaseEvent::Lost => {
                        // Another worker may already be running the job.
                        program.kill();
                        stop_reason = Some(StopReason::LeaseLost);
                        None
                    }
                },
                () = sleep_until(deadline) => Some(StopReason::TimedOut),
                () = abandoning(&self.phase), if stop_reason.is_none() => Some(StopReason::Abandoned),
                () = sleep_until(kill_at) => {
                    program.kill();
                    kill_at = Instant::now() + far;
                    None
                }
            };
            if terminate == Some(StopReason::TimedOut) {
                deadline = Instant::now() + far;
            }
            if let Some(reason) = terminate
                && stop_reason.is_none()
            {
                stop_reason = Some(reason);
                program.terminate();
                kill_at = Instant::now() + grace;
            }
        }
    }

    fn outcome_of(&self, ended: &ProgramExit, stop_reason: Option<StopReason>) -> SettlementRequest {
        match (stop_reason, ended.code) {
            (Some(StopReason::LeaseLost), _) => SettlementRequest::Nothing,
            // The program finished before the signal reached it.
            (None | Some(StopReason::Cancelled | StopReason::Abandoned), Some(0)) => {
                SettlementRequest::Complete(result(&ended.stdout))
            }
            (Some(StopReason::TimedOut), _) => {
                SettlementRequest::Fail(reported(ReportedCategory::Timeout, "execution_timeout", ended.message()))
            }
            (Some(StopReason::Cancelled), _) => {
                let message = "the program was stopped because the job was cancelled".to_owned();
                SettlementRequest::Cancelled(reported(ReportedCategory::Temporary, "cancelled", message))
            }
            (Some(StopReason::Abandoned), _) => SettlementRequest::Release,
            (None, Some(code)) if code == i32::from(self.options.permanent_exit_code) => {
                SettlementRequest::Fail(reported(ReportedCategory::Permanent, &format!("exit_{code}"), ended.message()))
            }
            (None, Some(code)) => {
                SettlementRequest::Fail(reported(ReportedCategory::Temporary, &format!("exit_{code}"), ended.message()))
            }
            (None, None) => {
                let code = ended.signal.map_or("ended".to_owned(), |signal| format!("signal_{signal}"));
                SettlementRequest::Fail(reported(ReportedCategory::Temporary, &code, ended.message()))
            }
        }
    }
}

fn reported(category: ReportedCategory, code: &str, message: String) -> ReportedError {
    ReportedError {
        category,
        message: Some(message),
        code: Some(code.to_owned()),
        cause: None,
        retry_after: None,
        unrecoverable: None,
    }
}

/// Returns the output as the result if it is JSON.
fn result(stdout: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(stdout).ok()?.trim();
    if text.is_empty() { None } else { serde_json::from_str(text).ok() }
}
