//! Runs the SDK's worker with a handler that starts a program.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore::{Client, JobContext, RunEnd, RunReport, Worker, WorkerError, WorkerEvent};
use longshore_api::enums::State;
use parking_lot::Mutex;
use serde::Serialize;

use super::WorkOptions;
use super::attempt::run_program;
use super::paused::{paused_error, paused_with_work};
use crate::commands::parse::counted;
use crate::terminal::error::CliError;
use crate::terminal::output::Output;

/// Time between the SIGKILL to a program and the release of its job by the SDK.
const KILL_MARGIN: Duration = Duration::from_secs(5);

/// Result of an attempt, as it is printed.
#[derive(Debug, Serialize)]
struct AttemptReport<'a> {
    id: &'a str,
    queue: &'a str,
    #[serde(rename = "type")]
    job_type: &'a str,
    attempt: u32,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// State of the job after the settlement.
    state: Option<State>,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

impl fmt::Display for AttemptReport<'_> {
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

/// Exit codes of programs by lease token, until their reports are printed.
pub(super) type ExitCodes = Arc<Mutex<HashMap<String, i32>>>;

pub(super) async fn run(options: WorkOptions, name: String, client: Client, output: Output) -> Result<(), CliError> {
    // An unreachable server is an error at the start, and an outage later.
    client.info().await?;
    let queues = options.queues.join(", ");
    output.info(&format!("worker \"{name}\" claims from {queues} at {}", client.url()));
    let (exit_codes, is_interrupted) = (ExitCodes::default(), Arc::new(AtomicBool::new(false)));
    let worker = build(&options, name, &client, output, &exit_codes, &is_interrupted);
    match worker.run().await {
        Ok(_) => {}
        Err(WorkerError::Refused(error)) => return Err(CliError::from(error).context("claim")),
        Err(error) => return Err(CliError::failed(error.to_string())),
    }
    if options.until_empty && !is_interrupted.load(Ordering::Relaxed) {
        let paused = paused_with_work(&client, &options.queues, &options.types).await?;
        return paused.map_or(Ok(()), |queue| Err(paused_error(&queue)));
    }
    Ok(())
}

fn build(
    options: &WorkOptions,
    name: String,
    client: &Client,
    output: Output,
    exit_codes: &ExitCodes,
    is_interrupted: &Arc<AtomicBool>,
) -> Worker {
    let (grace, drain) = (options.grace.as_std(), options.drain_timeout.as_std());
    let (handler_options, handler_codes) = (Arc::new(options.clone()), Arc::clone(exit_codes));
    let handler = move |context: JobContext| {
        run_program(context, Arc::clone(&handler_options), output, Arc::clone(&handler_codes))
    };
    let (exit_codes, is_interrupted) = (Arc::clone(exit_codes), Arc::clone(is_interrupted));
    let mut worker = Worker::new(client.clone())
        .name(name)
        .slots(usize::from(options.concurrency))
        .wait(options.wait.as_std())
        .cancel_after(drain)
        .grace(drain + grace + KILL_MARGIN)
        .release_grace(grace + KILL_MARGIN)
        .stuck_grace(grace + KILL_MARGIN)
        .on_types(options.types.clone(), handler)
        .observe(move |event| print_event(event, output, &exit_codes, &is_interrupted))
        .handle_signals();
    for queue in &options.queues {
        worker = worker.queue(queue);
    }
    if let Some(lease) = options.lease {
        worker = worker.lease(lease.as_std());
    }
    if let Some(timeout) = options.execution_timeout {
        worker = worker.execution_timeout(timeout.as_std());
    }
    if let Some(most) = options.max_jobs {
        worker = worker.max_jobs(most);
    }
    if options.until_empty { worker.until_empty() } else { worker }
}

fn print_event(event: &WorkerEvent<'_>, output: Output, exit_codes: &ExitCodes, is_interrupted: &AtomicBool) {
    match event {
        WorkerEvent::ServerLost { why } => output.warn(&format!("the server does not respond: {why}; retrying")),
        WorkerEvent::ServerRestored => output.warn("the server responds again"),
        WorkerEvent::Draining { running } => {
            is_interrupted.store(true, Ordering::Relaxed);
            let jobs = counted(*running, "running job");
            output.info(&format!("draining: finishing {jobs}; a second signal releases them"));
        }
        WorkerEvent::Cancelling { .. } => output.info("stopping programs and releasing their jobs"),
        WorkerEvent::RunEnded(report) => print_report(report, output, exit_codes),
        // `RunEnded` follows the first; the command prints the report at the end.
        WorkerEvent::Abandoned { .. } | WorkerEvent::Ended(_) => {}
        // Events of a later version of the SDK.
        _ => {}
    }
}

/// Prints the result of an attempt. A closed standard output does not stop the worker.
fn print_report(report: &RunReport<'_>, output: Output, exit_codes: &ExitCodes) {
    let is_cancelled = report.end == RunEnd::Failed && report.state == Some(State::Cancelled);
    let report = AttemptReport {
        id: &report.job.id,
        queue: &report.job.queue,
        job_type: &report.job.job_type,
        attempt: report.job.attempt,
        outcome: if is_cancelled { "cancelled" } else { report.end.as_str() },
        exit_code: exit_codes.lock().remove(&report.job.lease.token),
        state: report.state,
        seconds: report.duration.as_secs_f64(),
        detail: report.detail,
    };
    let printed = if output.json { output.json_line(&report) } else { output.line(&report.to_string()) };
    drop(printed);
}
