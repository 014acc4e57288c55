//! What a worker reports: events while it runs, and a report at its end.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longshore_api::enums::State;
use longshore_api::work::ClaimedJob;
use serde::Serialize;

use crate::error::Error;

/// Counts of a worker, from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerReport {
    /// Settlements that the server accepted, by outcome.
    pub completed: u64,
    pub failed: u64,
    pub snoozed: u64,
    pub released: u64,
    /// Jobs whose lease was lost: nothing was settled, and another worker runs them.
    pub lost: u64,
    /// Handlers that ignored their deadline. They may still be running.
    pub abandoned: u64,
    /// Handlers that panicked; they also count as failed.
    pub panicked: u64,
}

impl fmt::Display for WorkerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { completed, failed, snoozed, released, lost, abandoned, panicked } = self;
        write!(f, "{completed} completed, {failed} failed, {snoozed} snoozed, {released} released, ")?;
        write!(f, "{lost} lost, {abandoned} abandoned, {panicked} panicked")
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunEnd {
    Completed,
    Failed,
    Snoozed,
    Released,
    Lost,
    Abandoned,
}

impl RunEnd {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Snoozed => "snoozed",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Abandoned => "abandoned",
        }
    }
}

/// The end of one run.
#[derive(Debug)]
pub struct RunReport<'a> {
    pub job: &'a ClaimedJob,
    pub end: RunEnd,
    /// State of the job after the settlement.
    pub state: Option<State>,
    pub duration: Duration,
    /// Message of a failure, or why the lease was lost.
    pub detail: Option<&'a str>,
}

/// What happens in a worker. See [`Worker::observe`](super::Worker::observe).
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerEvent<'a> {
    /// The server does not respond. The worker retries.
    ServerLost {
        why: &'a str,
    },
    ServerRestored,
    /// A first signal, a stop of the operator or the end of the work: no more claims.
    Draining {
        running: usize,
    },
    /// The tokens of all handlers have fired with `drain`.
    Cancelling {
        running: usize,
    },
    RunEnded(RunReport<'a>),
    /// A handler ignored its deadline: its slot is free again, and it may still be running.
    Abandoned {
        job: &'a ClaimedJob,
    },
    /// The worker has ended, with this report. The last event, also if the run returns an error.
    Ended(WorkerReport),
}

/// A function that gets the events of a worker.
pub(super) type EventFunction = Arc<dyn Fn(&WorkerEvent<'_>) + Send + Sync>;

/// Counters, and the function that gets the events.
pub(crate) struct Reporter {
    observe: Option<EventFunction>,
    is_lost: AtomicBool,
    counts: [AtomicU64; 7],
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reporter({})", self.report())
    }
}

impl Reporter {
    pub(crate) fn new(observe: Option<EventFunction>) -> Self {
        Self { observe, is_lost: AtomicBool::new(false), counts: Default::default() }
    }

    pub(crate) fn emit(&self, event: &WorkerEvent<'_>) {
        let Some(observe) = &self.observe else { return log(event) };
        // A panic must not end the thread of the heartbeats.
        if std::panic::catch_unwind(AssertUnwindSafe(|| observe(event))).is_err() {
            tracing::error!("the function that gets the events of the worker panicked");
        }
    }

    pub(crate) fn count_panic(&self) {
        self.add(6);
    }

    fn add(&self, index: usize) {
        if let Some(count) = self.counts.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn abandoned(&self) -> u64 {
        self.report().abandoned
    }

    pub(crate) fn end_run(&self, report: RunReport<'_>) {
        self.add(match report.end {
            RunEnd::Completed => 0,
            RunEnd::Failed => 1,
            RunEnd::Snoozed => 2,
            RunEnd::Released => 3,
            RunEnd::Lost => 4,
            RunEnd::Abandoned => 5,
        });
        self.emit(&WorkerEvent::RunEnded(report));
    }

    pub(crate) fn report(&self) -> WorkerReport {
        let [completed, failed, snoozed, released, lost, abandoned, panicked] =
            self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        WorkerReport { completed, failed, snoozed, released, lost, abandoned, panicked }
    }

    pub(crate) fn is_server_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Reports the start and the end of an outage, by the responses to all requests.
    pub(crate) fn observe_response<T>(&self, response: &Result<T, Error>) {
        match response {
            Ok(_) => self.on_response(),
            Err(error) if is_outage(error) => self.on_outage(&error.to_string()),
            Err(Error::Refused(_)) => self.on_response(),
            Err(
                Error::Connect { .. }
                | Error::ResponseLost { .. }
                | Error::UnexpectedResponse { .. }
                | Error::InvalidRequest(_),
            ) => {}
        }
    }

    pub(crate) fn on_outage(&self, why: &str) {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            self.emit(&WorkerEvent::ServerLost { why });
        }
    }

    fn on_response(&self) {
        if self.is_lost.load(Ordering::Relaxed) && self.is_lost.swap(false, Ordering::Relaxed) {
            self.emit(&WorkerEvent::ServerRestored);
        }
    }
}

/// Whether there was no response, or a status of 500 or above from the server or a proxy.
pub(crate) fn is_outage(error: &Error) -> bool {
    match error {
        Error::Connect { .. } | Error::ResponseLost { .. } => true,
        Error::Refused(problem) => problem.status >= 500,
        Error::UnexpectedResponse { status, .. } => *status >= 500,
        Error::InvalidRequest(_) => false,
    }
}

/// Writes an event to the log.
fn log(event: &WorkerEvent<'_>) {
    match event {
        WorkerEvent::ServerLost { why } => tracing::warn!(why, "the server does not respond; retrying"),
        WorkerEvent::ServerRestored => tracing::warn!("the server responds again"),
        WorkerEvent::Draining { running } => tracing::info!(running, "draining: no more claims"),
        WorkerEvent::Cancelling { running } => tracing::info!(running, "stopping handlers and releasing their jobs"),
        WorkerEvent::RunEnded(report) => {
            let (id, job_type, attempt) = (&report.job.id, &report.job.job_type, report.job.attempt);
            let (end, detail) = (report.end.as_str(), report.detail.unwrap_or_default());
            match report.end {
                RunEnd::Completed | RunEnd::Snoozed | RunEnd::Released => {
                    tracing::debug!(id, job_type, attempt, end, "job ended");
                }
                RunEnd::Failed | RunEnd::Lost | RunEnd::Abandoned => {
                    tracing::warn!(id, job_type, attempt, end, detail, "job did not complete");
                }
            }
        }
        WorkerEvent::Ended(report) => tracing::info!(%report, "the worker has ended"),
        WorkerEvent::Abandoned { job } => {
            tracing::error!(id = job.id, job_type = job.job_type, "stuck handler abandoned; it may still be running");
        }
    }
}
