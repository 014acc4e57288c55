//! Errors of requests.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use longshore_api::{ErrorCode, Problem, RetryAdvice};

/// The error of a library.
pub(crate) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug)]
pub enum Error {
    /// The server has refused the request, or cannot serve it now.
    Refused(Box<ServerRefusal>),
    /// No connection: the request was not sent.
    Connect { url: String, cause: BoxedError },
    /// The request was sent, and there is no complete response: it may have been applied.
    ResponseLost { cause: BoxedError },
    /// The response does not have the form of this API, such as one of another server.
    UnexpectedResponse { status: u16, detail: String },
    /// The request cannot be serialized: it was not sent.
    InvalidRequest(String),
}

impl Error {
    /// Returns the code of a refusal, if this version knows it.
    pub fn code(&self) -> Option<ErrorCode> {
        self.problem().and_then(|problem| ErrorCode::from_code(&problem.code))
    }

    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(refusal) => Some(&refusal.problem),
            Self::Connect { .. }
            | Self::ResponseLost { .. }
            | Self::UnexpectedResponse { .. }
            | Self::InvalidRequest(_) => None,
        }
    }

    /// How long the server asks its clients to wait: the header `Retry-After` of a refusal.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after,
            Self::Connect { .. }
            | Self::ResponseLost { .. }
            | Self::UnexpectedResponse { .. }
            | Self::InvalidRequest(_) => None,
        }
    }

    /// Whether the same request can be repeated.
    pub fn retry(&self) -> RetryAdvice {
        match self {
            Self::Refused(refusal) => refusal.retry,
            Self::Connect { .. } => RetryAdvice::Safe,
            Self::ResponseLost { .. } => RetryAdvice::Unknown,
            // A proxy that got no response from the server: it may have received the request.
            Self::UnexpectedResponse { status: 502 | 504, .. } => RetryAdvice::Unknown,
            Self::UnexpectedResponse { .. } | Self::InvalidRequest(_) => RetryAdvice::Never,
        }
    }
}

/// A response that refuses a request: its body, and the wait that its header asks for.
#[derive(Clone, Debug)]
pub struct ServerRefusal {
    pub problem: Problem,
    /// The header `Retry-After`, if it is a number of seconds.
    pub retry_after: Option<Duration>,
}

impl Deref for ServerRefusal {
    type Target = Problem;

    fn deref(&self) -> &Problem {
        &self.problem
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{}", refusal.problem),
            Self::Connect { url, cause } => write!(f, "cannot reach {url}: {}", root_cause(cause.as_ref())),
            Self::ResponseLost { cause } => write!(f, "no response: {}", root_cause(cause.as_ref())),
            Self::UnexpectedResponse { status, detail } => write!(f, "unexpected response {status}: {detail}"),
            Self::InvalidRequest(detail) => write!(f, "invalid request: {detail}"),
        }
    }
}

/// Returns the innermost cause. The outer ones only say that a request failed.
fn root_cause<'a>(cause: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut cause = cause;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(&refusal.problem),
            Self::Connect { cause, .. } | Self::ResponseLost { cause } => Some(cause.as_ref()),
            Self::UnexpectedResponse { .. } | Self::InvalidRequest(_) => None,
        }
    }
}

/// A text that is not the URL of a server, or a server that cannot be reached with these settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUrl {
    pub url: String,
    pub reason: String,
}

impl BadUrl {
    pub(crate) fn new(url: &str, reason: impl Into<String>) -> Self {
        Self { url: url.to_owned(), reason: reason.into() }
    }
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot use the server URL \"{}\": {}", self.url, self.reason)
    }
}

impl std::error::Error for BadUrl {}

/// There was no response within the timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeoutError(pub(crate) Duration);

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timed out after {} s", self.0.as_secs_f64())
    }
}

impl std::error::Error for TimeoutError {}
