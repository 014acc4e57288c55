//! One job, from its claim to its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::enums::{ReportedCategory, State};
use longshore_api::work::{ClaimedJob, ReportedError};
use longshore_client::Client;
use longshore_store::clock::monotonic;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::Work;
use super::connectivity::Connectivity;
use super::heartbeat::{LeaseEvent, LeaseKeeper};
use super::program::{Ended, Program};
use super::settle::{Reporter, SettleResult, SettlementRequest};
use super::worker::{Phase, abandoning};
use crate::terminal::output::Output;

pub(super) struct Attempt {
    pub(super) work: Arc<Work>,
    pub(super) client: Client,
    pub(super) screen: Output,
    /// When the claim was sent: the lease is no older than that.
    pub(super) asked_at: Duration,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) connectivity: Arc<Connectivity>,
}

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    id: String,
    queue: String,
    #[serde(rename = "type")]
    job_type: String,
    attempt: u32,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// As the server has it now.
    state: Option<State>,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl fmt::Display for Outcome {
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

/// Why a program was told to end before it did by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    Cancelled,
    TimedOut,
    LeaseLost,
    Abandoned,
}

/// What the server keeps to itself in a claim and tells when asked.
#[derive(Clone, Copy, Debug, Default)]
struct EffectiveLimits {
    lease: Option<Duration>,
    execution_timeout: Option<Duration>,
}

impl Attempt {
    pub(super) async fn run(self, job: ClaimedJob) -> Outcome {
        let started = monotonic();
        let terms = self.terms(&job).await;
        let reporter = Reporter {
            client: self.client.clone(),
            screen: self.screen,
            id: job.id.clone(),
            token: job.lease.token.clone(),
            phase: self.phase.clone(),
            connectivity: Arc::clone(&self.connectivity),
        };
        let (report, exit_code) = match Program::start(&self.work, &job, self.client.url(), self.screen) {
            Ok(program) => {
                let pulse = LeaseKeeper::new(&self.client, &job, terms.lease, self.asked_at, &self.connectivity);
                let (ended, cut) = self.supervise(program, pulse, &terms).await;
                (self.outcome_of(&ended, cut), ended.code)
            }
            Err(error) => {
                let message = format!("the program cannot be started: {error}");
                (SettlementRequest::Fail(reported(ReportedCategory::System, "cannot_start", message)), None)
            }
        };
        let word = report.as_str();
        let SettleResult { state, detail } = reporter.tell(report).await;
        Outcome {
            id: job.id,
            queue: job.queue,
            job_type: job.job_type,
            attempt: job.attempt,
            outcome: word,
            exit_code,
            state,
            seconds: (monotonic() - started).as_secs_f64(),
            detail,
        }
    }

    /// How long its lease is. The server tells when it ends by a clock of its own; how long that is, is known without comparing clocks.
    async fn terms(&self, job: &ClaimedJob) -> EffectiveLimits {
        let positive = |length: longshore_api::Duration| (length.0 > 0).then(|| length.as_std());
        let (own_lease, own_timeout) = (self.work.lease, self.work.execution_timeout.and_then(positive));
        let known = timeout(Duration::from_secs(2), self.client.job(&job.id)).await;
        let Ok(Ok(record)) = known else {
            return EffectiveLimits { lease: own_lease.and_then(positive), execution_timeout: own_timeout };
        };
        let of_job = record.policy.execution_timeout.and_then(positive);
        let shorter = match (of_job, own_timeout) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        EffectiveLimits { lease: own_lease.or(record.policy.lease).and_then(positive), execution_timeout: shorter }
    }

    /// Until the program has ended, by itself or because it was told to.
    async fn supervise(
        &self,
        mut program: Program,
        mut pulse: LeaseKeeper,
        terms: &EffectiveLimits,
    ) -> (Ended, Option<StopReason>) {
        let far = Duration::from_secs(86_400 * 365);
        let mut deadline = Instant::now() + terms.execution_timeout.unwrap_or(far);
        let mut kill_at = Instant::now() + far;
        let mut cut: Option<StopReason> = None;
        let grace = self.work.grace.as_std();
        loop {
            let softly = tokio::select! {
                biased;
                ended = program.ended() => return (ended, cut),
                beat = pulse.next() => match beat {
                    LeaseEvent::CancelRequested => Some(StopReason::Cancelled),
                    LeaseEvent::Lost => {
                        // Somebody else may be at it already.
                        program.kill();
                        cut = Some(StopReason::LeaseLost);
                        None
                    }
                },
                () = sleep_until(deadline) => Some(StopReason::TimedOut),
                () = abandoning(&self.phase), if cut.is_none() => Some(StopReason::Abandoned),
                () = sleep_until(kill_at) => {
                    program.kill();
                    kill_at = Instant::now() + far;
                    None
                }
            };
            if softly == Some(StopReason::TimedOut) {
                deadline = Instant::now() + far;
            }
            if let Some(reason) = softly
                && cut.is_none()
            {
                cut = Some(reason);
                program.terminate();
                kill_at = Instant::now() + grace;
            }
        }
    }

    fn outcome_of(&self, ended: &Ended, cut: Option<StopReason>) -> SettlementRequest {
        match (cut, ended.code) {
            (Some(StopReason::LeaseLost), _) => SettlementRequest::Nothing,
            // It got there before it was stopped.
            (None | Some(StopReason::Cancelled | StopReason::Abandoned), Some(0)) => {
                SettlementRequest::Complete(result(&ended.stdout))
            }
            (Some(StopReason::TimedOut), _) => {
                SettlementRequest::Fail(reported(ReportedCategory::Timeout, "execution_timeout", ended.message()))
            }
            (Some(StopReason::Cancelled), _) => {
                let message = "the program was ended because the job was cancelled".to_owned();
                SettlementRequest::Cancelled(reported(ReportedCategory::Temporary, "cancelled", message))
            }
            (Some(StopReason::Abandoned), _) => SettlementRequest::Release,
            (None, Some(code)) if code == i32::from(self.work.permanent_exit_code) => {
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

/// Output that is JSON is the result, as it stands.
fn result(stdout: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(stdout).ok()?.trim();
    if text.is_empty() { None } else { serde_json::from_str(text).ok() }
}
