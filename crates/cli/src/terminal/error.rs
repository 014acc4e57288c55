//! Why a command did not do what was asked, what to try next, and the exit code: 1 refused, 2 failed.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use longshore_api::{ErrorCode, Problem};
use longshore_client::Error as ClientError;
use serde::Serialize;

use super::escape::{safe_json, safe_lines};

/// How a command ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitKind {
    /// The answer is no: the request is wrong, or the present state does not allow it.
    Refused,
    /// It could not be done: no server, no answer, a broken disk.
    Failed,
    /// Whoever read our output has seen enough.
    BrokenPipe,
}

#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) ending: ExitKind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) problem: Option<Box<Problem>>,
}

impl CliError {
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { ending: ExitKind::Refused, message: message.into(), hint: None, problem: None }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { ending: ExitKind::Failed, message: message.into(), hint: None, problem: None }
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// What was attempted, before what went wrong.
    #[must_use]
    pub(crate) fn context(self, what: impl Display) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    pub(crate) fn code(&self) -> u8 {
        match self.ending {
            ExitKind::BrokenPipe => 0,
            ExitKind::Refused => 1,
            ExitKind::Failed => 2,
        }
    }

    /// Says it on standard error, and gives the exit code.
    pub(crate) fn print(&self, json: bool) -> ExitCode {
        if self.ending != ExitKind::BrokenPipe {
            if json {
                let told = ErrorJson {
                    error: &self.message,
                    hint: self.hint.as_deref(),
                    exit_code: self.code(),
                    problem: self.problem.as_deref(),
                };
                eprintln!("{}", safe_json(&serde_json::to_string(&told).unwrap_or_default()));
            } else {
                eprintln!("longshore: {}", safe_lines(&self.message));
                for member in self.problem.iter().flat_map(|problem| &problem.errors).take(MEMBERS_SHOWN) {
                    let told = format!("  job {}: {}: {}", member.index, member.code, member.detail);
                    eprintln!("{}", safe_lines(&told));
                }
                if let Some(hint) = &self.hint {
                    eprintln!("hint: {}", safe_lines(hint));
                }
            }
        }
        ExitCode::from(self.code())
    }
}

/// Of a batch that was refused for many of its members, these say enough.
const MEMBERS_SHOWN: usize = 10;

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
            return Self { ending: ExitKind::BrokenPipe, ..Self::failed("") };
        }
        Self::failed(error.to_string())
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::Connect { .. } => Self::failed(message).hint(
                "start a server with `longshore serve`, or name another one with --server URL or LONGSHORE_SERVER",
            ),
            ClientError::ResponseLost { .. } => {
                Self::failed(message).hint("it may have been done all the same: look before you repeat it")
            }
            ClientError::UnexpectedResponse { .. } => {
                Self::failed(message).hint("is it a Longshore server, of the same version, that listens there?")
            }
            ClientError::InvalidRequest(_) => Self::failed(message),
            ClientError::Refused(problem) => {
                let ending = if problem.status >= 500 { ExitKind::Failed } else { ExitKind::Refused };
                let hint = ErrorCode::from_code(&problem.code).and_then(hint_for).map(str::to_owned);
                Self { ending, message, hint, problem: Some(problem) }
            }
        }
    }
}

fn hint_for(code: ErrorCode) -> Option<&'static str> {
    match code {
        ErrorCode::JobNotFound => {
            Some("`longshore jobs list` shows what there is; ended jobs are removed after their retention")
        }
        ErrorCode::QueueNotFound => {
            Some("`longshore queues list` shows what there is, `longshore queues set NAME` creates one")
        }
        ErrorCode::WorkflowNotFound => {
            Some("`longshore workflows list` shows what there is; a workflow goes with its last job")
        }
        ErrorCode::IllegalTransition => Some("`longshore jobs get ID` shows the state that it is in"),
        ErrorCode::QueueFull => {
            Some("let workers catch up, or raise it with `longshore queues set NAME --set max_queued=…`")
        }
        ErrorCode::DependencyUnknown => Some("name jobs that exist; a \"#ref\" is known only inside of its own batch"),
        ErrorCode::DuplicateId => Some("this external id was used before in this queue; take another, or none"),
        ErrorCode::PayloadTooLarge => {
            Some("keep large data elsewhere and submit its address; a queue's limit is its setting payload_max")
        }
        ErrorCode::NotFound | ErrorCode::MethodNotAllowed => Some("the server may be older than this program"),
        ErrorCode::StoreUnavailable | ErrorCode::Internal => Some("the server's log says more"),
        ErrorCode::SubmissionTimeout => {
            Some("it may have been stored: repeat it with the same --idempotency-key, or look first")
        }
        ErrorCode::BadRequest
        | ErrorCode::Validation
        | ErrorCode::DependencyCycle
        | ErrorCode::DependencyDepth
        | ErrorCode::DependencyBreadth
        | ErrorCode::Unauthorized
        | ErrorCode::Forbidden
        | ErrorCode::ScheduleNotFound
        | ErrorCode::StaleLease
        | ErrorCode::UnsupportedMediaType
        | ErrorCode::RateLimited => None,
    }
}
