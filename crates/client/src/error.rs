//! What can become of a call that did not succeed.

use std::fmt;

use longshore_api::{ErrorCode, Problem, RetryAdvice};

/// A boxed cause, as libraries underneath give it.
type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug)]
pub enum Error {
    /// The server said no, or that it cannot now.
    Refused(Box<Problem>),
    /// No connection: nothing was sent.
    Connect { url: String, cause: Cause },
    /// Sent, and no whole answer came: it may have been applied.
    ResponseLost { cause: Cause },
    /// An answer that is not of this API, as from another kind of server.
    UnexpectedResponse { status: u16, detail: String },
    /// The request could not be written down; nothing was sent.
    InvalidRequest(String),
}

impl Error {
    /// The code of a refusal, where it is one of the table.
    pub fn code(&self) -> Option<ErrorCode> {
        self.problem().and_then(|problem| ErrorCode::from_code(&problem.code))
    }

    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::Connect { .. }
            | Self::ResponseLost { .. }
            | Self::UnexpectedResponse { .. }
            | Self::InvalidRequest(_) => None,
        }
    }

    /// What is known about making the same call again.
    pub fn retry(&self) -> RetryAdvice {
        match self {
            Self::Refused(problem) => problem.retry,
            Self::Connect { .. } => RetryAdvice::Safe,
            Self::ResponseLost { .. } => RetryAdvice::Unknown,
            Self::UnexpectedResponse { .. } | Self::InvalidRequest(_) => RetryAdvice::Never,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(problem) => write!(f, "{problem}"),
            Self::Connect { url, cause } => write!(f, "cannot reach {url}: {}", root_cause(cause.as_ref())),
            Self::ResponseLost { cause } => write!(f, "no answer: {}", root_cause(cause.as_ref())),
            Self::UnexpectedResponse { status, detail } => write!(f, "answer {status} is not understood: {detail}"),
            Self::InvalidRequest(detail) => write!(f, "the request cannot be written: {detail}"),
        }
    }
}

/// Causes of causes only repeat that something failed; the last one says what.
fn root_cause<'a>(cause: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut cause = cause;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::Connect { cause, .. } | Self::ResponseLost { cause } => Some(cause.as_ref()),
            Self::UnexpectedResponse { .. } | Self::InvalidRequest(_) => None,
        }
    }
}

/// Not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl {
    pub url: String,
    pub why: &'static str,
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not the address of a server: {}", self.url, self.why)
    }
}

impl std::error::Error for BadUrl {}

/// Nothing came within the time that was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeoutError(pub(crate) std::time::Duration);

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing came within {} s", self.0.as_secs_f64())
    }
}

impl std::error::Error for TimeoutError {}
