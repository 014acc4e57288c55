//! Runs one job: the program, and what stops it.

use std::sync::Arc;
use std::time::Duration;

use longshore::{CancelReason, HandlerError, JobContext};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use super::WorkOptions;
use super::program::{Program, ProgramExit};
use super::worker::ExitCodes;
use crate::terminal::output::Output;

/// Result of a program.
type ProgramResult = Result<Option<Box<RawValue>>, HandlerError>;

pub(super) async fn run_program(
    context: JobContext,
    options: Arc<WorkOptions>,
    output: Output,
    exit_codes: ExitCodes,
) -> ProgramResult {
    let program = Program::start(&options, context.job(), context.client().url(), output)
        .map_err(|error| HandlerError::system("cannot_start", format!("cannot start the program: {error}")))?;
    let (ended, reason) = supervise(&context, program, options.grace.as_std()).await;
    if let Some(code) = ended.code {
        exit_codes.lock().insert(context.job().lease.token.clone(), code);
    }
    outcome_of(&options, &ended, reason)
}

/// Waits for the end of the program, and stops it on cancel, timeout, lost lease or shutdown.
async fn supervise(context: &JobContext, mut program: Program, grace: Duration) -> (ProgramExit, Option<CancelReason>) {
    let far = Duration::from_secs(86_400 * 365);
    let mut kill_at = Instant::now() + far;
    let mut stop_reason = None;
    loop {
        tokio::select! {
            biased;
            ended = program.wait() => return (ended, stop_reason),
            // Another worker may already be running the job.
            () = context.lease_lost(), if stop_reason != Some(CancelReason::LeaseLost) => {
                program.kill();
                stop_reason = Some(CancelReason::LeaseLost);
            }
            reason = context.cancelled(), if stop_reason.is_none() => {
                program.terminate();
                kill_at = Instant::now() + grace;
                stop_reason = Some(reason);
            }
            () = sleep_until(kill_at) => {
                program.kill();
                kill_at = Instant::now() + far;
            }
        }
    }
}

fn outcome_of(options: &WorkOptions, ended: &ProgramExit, reason: Option<CancelReason>) -> ProgramResult {
    match (reason, ended.code) {
        // The program finished before the signal reached it.
        (None | Some(CancelReason::Cancelled | CancelReason::Drain), Some(0)) => Ok(result(&ended.stdout)),
        // The SDK reports a timeout, or nothing for a lost lease.
        (Some(CancelReason::Deadline | CancelReason::LeaseLost), _) => Err(HandlerError::temporary(ended.message())),
        (Some(CancelReason::Cancelled), _) => {
            let message = "the program was stopped because the job was cancelled";
            Err(HandlerError::temporary(message).with_code("cancelled"))
        }
        (Some(CancelReason::Drain), _) => Err(HandlerError::release()),
        (None, Some(code)) if code == i32::from(options.permanent_exit_code) => {
            Err(HandlerError::permanent(format!("exit_{code}"), ended.message()))
        }
        (None, Some(code)) => Err(HandlerError::temporary(ended.message()).with_code(format!("exit_{code}"))),
        (None, None) => {
            let code = ended.signal.map_or("ended".to_owned(), |signal| format!("signal_{signal}"));
            Err(HandlerError::temporary(ended.message()).with_code(code))
        }
    }
}

/// Returns the output as the result if it is JSON.
fn result(stdout: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(stdout).ok()?.trim();
    if text.is_empty() { None } else { serde_json::from_str(text).ok() }
}
