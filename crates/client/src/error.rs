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
    Unreachable { url: String, cause: Cause },
    /// Sent, and no whole answer came: it may have been applied.
    NoAnswer { cause: Cause },
    /// An answer that is not of this API, as from another kind of server.
    NotUnderstood { status: u16, detail: String },
    /// The request could not be written down; nothing was sent.
    Request(String),
}

impl Error {
    /// The code of a refusal, where it is one of the table.
    pub fn code(&self) -> Option<ErrorCode> {
        self.problem().and_then(|problem| ErrorCode::from_code(&problem.code))
    }

    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::Unreachable { .. } | Self::NoAnswer { .. } | Self::NotUnderstood { .. } | Self::Request(_) => None,
        }
    }

    /// What is known about making the same call again.
    pub fn retry(&self) -> RetryAdvice {
        match self {
            Self::Refused(problem) => problem.retry,
            Self::Unreachable { .. } => RetryAdvice::Safe,
            Self::NoAnswer { .. } => RetryAdvice::Unknown,
            Self::NotUnderstood { .. } | Self::Request(_) => RetryAdvice::Never,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(problem) => write!(f, "{problem}"),
            Self::Unreachable { url, cause } => write!(f, "cannot reach {url}: {}", innermost(cause.as_ref())),
            Self::NoAnswer { cause } => write!(f, "no answer: {}", innermost(cause.as_ref())),
            Self::NotUnderstood { status, detail } => write!(f, "answer {status} is not understood: {detail}"),
            Self::Request(detail) => write!(f, "the request cannot be written: {detail}"),
        }
    }
}

/// Causes of causes only repeat that something failed; the last one says what.
fn innermost<'a>(cause: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
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
            Self::Unreachable { cause, .. } | Self::NoAnswer { cause } => Some(cause.as_ref()),
            Self::NotUnderstood { .. } | Self::Request(_) => None,
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
pub(crate) struct TooLate(pub(crate) std::time::Duration);

impl fmt::Display for TooLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing came within {} s", self.0.as_secs_f64())
    }
}

impl std::error::Error for TooLate {}
