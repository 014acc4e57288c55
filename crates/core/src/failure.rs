//! What can go wrong with a run, and how it is classified.

use std::fmt;
use std::sync::Arc;

use crate::id::validate_length;
use crate::limits::{ERROR_CAUSE_CHARS_MAX, ERROR_CODE_CHARS_MAX, ERROR_MESSAGE_CHARS_MAX};
use crate::policy::string_enum;
use crate::refusal::Invalid;
use crate::time::{Duration, Timestamp};

string_enum!(
    /// Every failure belongs to exactly one.
    Category {
        Temporary = "temporary",
        Permanent = "permanent",
        Timeout = "timeout",
        Cancelled = "cancelled",
        System = "system",
    }
);

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
    /// One that the server finds itself.
    pub fn detected(category: Category, code: &str, message: &str, at: Timestamp) -> Self {
        Self { category, code: Some(code.into()), message: message.into(), cause: None, at }
    }
}

/// What a worker says about its failed run: the typed error of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedFailure {
    pub category: ReportedCategory,
    pub message: Arc<str>,
    pub code: Option<Arc<str>>,
    pub cause: Option<Arc<str>>,
    /// When the handler would like to be tried again.
    pub retry_after: Option<Duration>,
    /// The wire's `final`: no retry, whatever the category.
    pub unrecoverable: bool,
}

string_enum!(
    /// The categories a worker may report; `cancelled` is the server's alone.
    ReportedCategory {
        Temporary = "temporary",
        Permanent = "permanent",
        Timeout = "timeout",
        System = "system",
    }
);

impl ReportedCategory {
    pub fn category(self) -> Category {
        match self {
            Self::Temporary => Category::Temporary,
            Self::Permanent => Category::Permanent,
            Self::Timeout => Category::Timeout,
            Self::System => Category::System,
        }
    }
}

impl ReportedFailure {
    pub fn new(category: ReportedCategory, message: &str) -> Self {
        Self { category, message: message.into(), code: None, cause: None, retry_after: None, unrecoverable: false }
    }

    pub fn check(&self) -> Result<(), Invalid> {
        validate_length("error.code", self.code.as_deref().unwrap_or_default(), ERROR_CODE_CHARS_MAX)?;
        let retry_after = self.retry_after.unwrap_or_default();
        retry_after.within_limit().map_err(|invalid| invalid.at("error.retry_after"))?;
        Ok(())
    }

    pub fn failure(&self, at: Timestamp) -> Failure {
        // Callers that branch on codes always find one on a permanent error.
        let unnamed = || (self.category == ReportedCategory::Permanent).then(|| Arc::from("permanent"));
        Failure {
            category: self.category.category(),
            code: self.code.clone().filter(|code| !code.is_empty()).or_else(unnamed),
            message: truncate_chars(&self.message, ERROR_MESSAGE_CHARS_MAX),
            cause: self.cause.as_ref().map(|cause| truncate_chars(cause, ERROR_CAUSE_CHARS_MAX)),
            at,
        }
    }
}

/// A report of a failure is worth more than the end of its text: a worker with a long story must not lose its lease over it.
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
    fn long_texts_are_cut_and_not_refused() {
        let story = "ä".repeat(ERROR_MESSAGE_CHARS_MAX + 1);
        let reported = ReportedFailure {
            cause: Some(story.as_str().into()),
            ..ReportedFailure::new(ReportedCategory::Temporary, &story)
        };
        assert!(reported.check().is_ok());
        let failure = reported.failure(Timestamp::from_millis(0));
        assert_eq!(failure.message.chars().count(), ERROR_MESSAGE_CHARS_MAX);
        assert_eq!(failure.cause.unwrap().chars().count(), ERROR_CAUSE_CHARS_MAX);
    }
}
