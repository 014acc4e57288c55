//! Errors of commands: message, hint, and exit code (1 refused, 2 failed).

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use longshore::Error as ClientError;
use longshore_api::{ErrorCode, Problem};
use serde::Serialize;

use super::escape::{safe_json, safe_lines};

/// How a command ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitKind {
    /// The request is invalid, or the current state does not allow it.
    Refused,
    /// No server, no response, or an I/O error.
    Failed,
    /// The reader of standard output has closed the pipe. Not an error: exit code 0.
    BrokenPipe,
}

#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit_kind: ExitKind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) problem: Option<Box<Problem>>,
}

impl CliError {
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { exit_kind: ExitKind::Refused, message: message.into(), hint: None, problem: None }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { exit_kind: ExitKind::Failed, message: message.into(), hint: None, problem: None }
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Prepends what was attempted to the message.
    #[must_use]
    pub(crate) fn context(self, what: impl Display) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self.exit_kind {
            ExitKind::BrokenPipe => 0,
            ExitKind::Refused => 1,
            ExitKind::Failed => 2,
        }
    }

    /// Prints the error to standard error and returns the exit code.
    pub(crate) fn print(&self, json: bool) -> ExitCode {
        if self.exit_kind != ExitKind::BrokenPipe {
            if json {
                let json = ErrorJson {
                    error: &self.message,
                    hint: self.hint.as_deref(),
                    exit_code: self.exit_code(),
                    problem: self.problem.as_deref(),
                };
                eprintln!("{}", safe_json(&serde_json::to_string(&json).unwrap_or_default()));
            } else {
                eprintln!("longshore: {}", safe_lines(&self.message));
                for item in self.problem.iter().flat_map(|problem| &problem.errors).take(BATCH_ERRORS_SHOWN) {
                    let line = format!("  job {}: {}: {}", item.index, item.code, item.detail);
                    eprintln!("{}", safe_lines(&line));
                }
                if let Some(hint) = &self.hint {
                    eprintln!("hint: {}", safe_lines(hint));
                }
            }
        }
        ExitCode::from(self.exit_code())
    }
}

/// Errors that are printed of a refused batch.
const BATCH_ERRORS_SHOWN: usize = 10;

#[derive(Serialize)]
struct ErrorJson<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a Problem>,
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { exit_kind: ExitKind::BrokenPipe, ..Self::failed("") };
        }
        Self::failed(error.to_string())
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::Connect { .. } => Self::failed(message).hint(
                "start a server with `longshore serve`, or select another one with --server URL or LONGSHORE_SERVER",
            ),
            ClientError::ResponseLost { .. } => {
                Self::failed(message).hint("the change may have been applied: check before you repeat it")
            }
            ClientError::UnexpectedResponse { .. } => {
                Self::failed(message).hint("check that a Longshore server of the same version listens there")
            }
            ClientError::InvalidRequest(_) => Self::failed(message),
            ClientError::Refused(refusal) => {
                let problem = Box::new(refusal.problem);
                let exit_kind = if problem.status >= 500 { ExitKind::Failed } else { ExitKind::Refused };
                let hint = ErrorCode::from_code(&problem.code).and_then(hint_for).map(str::to_owned);
                Self { exit_kind, message, hint, problem: Some(problem) }
            }
        }
    }
}

fn hint_for(code: ErrorCode) -> Option<&'static str> {
    match code {
        ErrorCode::JobNotFound => {
            Some("`longshore jobs list` lists all jobs; ended jobs are pruned after their retention")
        }
        ErrorCode::QueueNotFound => {
            Some("`longshore queues list` lists all queues, `longshore queues set NAME` creates one")
        }
        ErrorCode::WorkflowNotFound => {
            Some("`longshore workflows list` lists all workflows; a workflow is pruned with its last job")
        }
        ErrorCode::WebhookNotFound => Some("`longshore webhooks list` lists the endpoints"),
        ErrorCode::WorkerNotFound => Some("`longshore workers list` lists the workers that were seen within 24 hours"),
        ErrorCode::TokenNotFound => Some("`longshore tokens list` lists all tokens"),
        ErrorCode::Unauthorized => {
            Some("set LONGSHORE_TOKEN, use --token-file FILE, or choose a context with `longshore context use NAME`")
        }
        ErrorCode::Forbidden => Some("use a token with this action: `longshore tokens list` shows what tokens allow"),
        ErrorCode::MisdirectedRequest => Some("use --server http://127.0.0.1:PORT"),
        ErrorCode::IllegalTransition => Some("`longshore jobs get ID` shows the current state"),
        ErrorCode::QueueFull => {
            Some("wait for workers, or raise the limit with `longshore queues set NAME --set max_queued=N`")
        }
        ErrorCode::DependencyUnknown => Some("name existing jobs; a \"#ref\" is valid only inside its own batch"),
        ErrorCode::DuplicateId => Some("another job of this queue has this external id: use another one, or none"),
        ErrorCode::PayloadTooLarge => {
            Some("store large data elsewhere and submit its address; the limit is the queue setting payload_max")
        }
        ErrorCode::NotFound | ErrorCode::MethodNotAllowed => Some("the server may be older than this program"),
        ErrorCode::StoreUnavailable | ErrorCode::Internal => Some("see the server's log"),
        ErrorCode::SubmissionTimeout => {
            Some("the job may have been stored: repeat with the same --idempotency-key, or check first")
        }
        ErrorCode::BadRequest
        | ErrorCode::Validation
        | ErrorCode::DependencyCycle
        | ErrorCode::DependencyDepth
        | ErrorCode::DependencyBreadth
        | ErrorCode::ScheduleNotFound
        | ErrorCode::StaleLease
        | ErrorCode::UnsupportedMediaType
        | ErrorCode::RateLimited => None,
    }
}
