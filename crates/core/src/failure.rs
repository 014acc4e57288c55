//! Failures of attempts, and their categories.

use std::sync::Arc;

use crate::id::validate_length;
use crate::limits::{ERROR_CAUSE_CHARS_MAX, ERROR_CODE_CHARS_MAX, ERROR_MESSAGE_CHARS_MAX, check_duration};
use crate::refusal::Invalid;
use crate::time::{Duration, Timestamp};

pub use longshore_types::{Category, ReportedCategory};

/// A recorded failure. Shared by the job and the attempt that it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub category: Category,
    pub code: Option<Arc<str>>,
    pub message: Arc<str>,
    pub cause: Option<Arc<str>>,
    pub at: Timestamp,
}

impl Failure {
    /// Creates a failure that the server detected.
    pub fn detected(category: Category, code: &str, message: &str, at: Timestamp) -> Self {
        Self { category, code: Some(code.into()), message: message.into(), cause: None, at }
    }
}

/// A failure as its worker reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedFailure {
    pub category: ReportedCategory,
    pub message: Arc<str>,
    pub code: Option<Arc<str>>,
    pub cause: Option<Arc<str>>,
    /// Wait before the retry that the worker asks for.
    pub retry_after: Option<Duration>,
    /// `final` on the wire: no retry, for any category.
    pub unrecoverable: bool,
}

impl ReportedFailure {
    pub fn new(category: ReportedCategory, message: &str) -> Self {
        Self { category, message: message.into(), code: None, cause: None, retry_after: None, unrecoverable: false }
    }

    /// Checks what does not depend on the job, before any lookup.
    pub fn check(&self) -> Result<(), Invalid> {
        validate_length("error.code", self.code.as_deref().unwrap_or_default(), ERROR_CODE_CHARS_MAX)?;
        check_duration("error.retry_after", self.retry_after.unwrap_or_default())
    }

    /// Returns the failure to record.
    pub fn failure(&self, at: Timestamp) -> Failure {
        // A permanent failure always has a code, for clients that branch on codes.
        let default_code = || (self.category == ReportedCategory::Permanent).then(|| Arc::from("permanent"));
        Failure {
            category: self.category.category(),
            code: self.code.clone().filter(|code| !code.is_empty()).or_else(default_code),
            message: truncate_chars(&self.message, ERROR_MESSAGE_CHARS_MAX),
            cause: self.cause.as_ref().map(|cause| truncate_chars(cause, ERROR_CAUSE_CHARS_MAX)),
            at,
        }
    }
}

/// Truncates a text. A long message must not make the server refuse the report of a failure.
fn truncate_chars(text: &Arc<str>, chars_max: usize) -> Arc<str> {
    match text.char_indices().nth(chars_max) {
        None => Arc::clone(text),
        Some((end, _)) => Arc::from(text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_truncated() {
        let text = "ä".repeat(ERROR_MESSAGE_CHARS_MAX + 1);
        let reported = ReportedFailure {
            cause: Some(text.as_str().into()),
            ..ReportedFailure::new(ReportedCategory::Temporary, &text)
        };
        assert!(reported.check().is_ok());
        let failure = reported.failure(Timestamp::from_millis(0));
        assert_eq!(failure.message.chars().count(), ERROR_MESSAGE_CHARS_MAX);
        assert_eq!(failure.cause.unwrap().chars().count(), ERROR_CAUSE_CHARS_MAX);
    }
}
