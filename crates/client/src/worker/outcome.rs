//! Outcomes of handlers, as values.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::enums::{OutcomeKind, ReportedCategory};
use longshore_api::work::{ReportedError, Settlement};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::wire_duration;

/// How a run ends, as the server receives it.
#[derive(Clone, Debug)]
pub enum JobOutcome {
    /// The work is done, with its result.
    Complete(Option<Box<RawValue>>),
    /// The work failed.
    Fail(ReportedError),
    /// The job is ready again after a delay. No attempt is counted.
    Snooze(Duration),
    /// The job is ready again at once. No attempt is counted.
    Release,
}

impl JobOutcome {
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Complete(_) => OutcomeKind::Complete,
            Self::Fail(_) => OutcomeKind::Fail,
            Self::Snooze(_) => OutcomeKind::Snooze,
            Self::Release => OutcomeKind::Release,
        }
    }

    pub(super) fn into_settlement(self, id: String, token: String, progress: Option<Box<RawValue>>) -> Settlement {
        let kind = self.kind();
        let (mut result, mut error, mut delay, mut note) = (None, None, None, None);
        match self {
            Self::Complete(value) => (result, note) = (value, progress),
            Self::Fail(reported) => error = Some(reported),
            Self::Snooze(wait) => delay = Some(wire_duration(wait)),
            Self::Release => {}
        }
        Settlement { id, lease: Some(token), outcome: kind, result, progress: note, error, delay }
    }
}

/// Why a handler did not complete its job: a failure, or a wish to run it again later.
///
/// Any error becomes a temporary failure by `?`. The other outcomes are values:
///
/// ```
/// use std::time::Duration;
/// use longshore::HandlerError;
///
/// fn charge(card: &str, bank_is_closed: bool) -> Result<u64, HandlerError> {
///     if bank_is_closed {
///         return Err(HandlerError::snooze(Duration::from_secs(3600)));
///     }
///     if card.is_empty() {
///         return Err(HandlerError::permanent("no_card", "the customer has no card"));
///     }
///     Ok(card.parse()?)
/// }
/// # assert!(charge("x", false).is_err());
/// ```
#[derive(Clone, Debug)]
#[must_use = "return it from the handler"]
pub struct HandlerError {
    outcome: Box<JobOutcome>,
    /// The error that `?` has converted.
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Returns the outcome of an error that `?` has converted, or `None` for a temporary failure. See
/// [`Worker::classify`](super::Worker::classify).
pub(crate) type ClassifyFunction = Arc<dyn Fn(&(dyn Error + 'static)) -> Option<HandlerError> + Send + Sync>;

impl HandlerError {
    fn of(outcome: JobOutcome) -> Self {
        Self { outcome: Box::new(outcome), source: None }
    }

    fn failure(category: ReportedCategory, code: Option<String>, message: String) -> Self {
        Self::of(JobOutcome::Fail(reported(category, code, message)))
    }

    /// A failure that another try may avoid. The job is retried by its policy.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self::failure(ReportedCategory::Temporary, None, message.into())
    }

    /// A failure that another try would repeat.
    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::failure(ReportedCategory::Permanent, Some(code.into()), message.into())
    }

    /// A failure of the environment, not of the work.
    pub fn system(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::failure(ReportedCategory::System, Some(code.into()), message.into())
    }

    /// Makes the job ready again after `delay`. No attempt is counted.
    pub fn snooze(delay: Duration) -> Self {
        Self::of(JobOutcome::Snooze(delay))
    }

    /// Makes the job ready again at once, for another worker. No attempt is counted.
    pub fn release() -> Self {
        Self::of(JobOutcome::Release)
    }

    /// Sets the wait before the retry, instead of the backoff of the policy.
    pub fn retry_after(self, delay: Duration) -> Self {
        self.change(|error| error.retry_after = Some(wire_duration(delay)))
    }

    /// Sets the code of the failure, for programs. At most 256 characters are kept.
    pub fn with_code(self, code: impl Into<String>) -> Self {
        self.change(|error| error.code = Some(truncate_code(code.into())))
    }

    /// Ends the job without another retry, for any category.
    pub fn unrecoverable(self) -> Self {
        self.change(|error| error.unrecoverable = Some(true))
    }

    fn change(mut self, change: impl FnOnce(&mut ReportedError)) -> Self {
        if let JobOutcome::Fail(error) = self.outcome.as_mut() {
            change(error);
        }
        self
    }

    pub fn outcome(&self) -> &JobOutcome {
        &self.outcome
    }

    pub fn into_outcome(self) -> JobOutcome {
        *self.outcome
    }

    /// Applies the function of the worker to the error that `?` has converted.
    fn classify_with(self, classify: Option<&ClassifyFunction>) -> Self {
        let found = match (classify, &self.source) {
            (Some(classify), Some(source)) => classify(source.as_ref()),
            (None, _) | (_, None) => None,
        };
        found.unwrap_or(self)
    }
}

/// Any error is a temporary failure. Its sources become the cause.
impl<E: Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let mut causes = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        let cause = (!causes.is_empty()).then(|| causes.join("\n"));
        let failure = Self::temporary(error.to_string()).change(|error| error.cause = cause);
        Self { source: Some(Arc::new(error)), ..failure }
    }
}

/// Most characters of a code. A longer one would be refused, and with it the whole outcome.
const CODE_CHARS_MAX: usize = 256;

fn truncate_code(code: String) -> String {
    match code.char_indices().nth(CODE_CHARS_MAX) {
        Some((end, _)) => code.get(..end).unwrap_or_default().to_owned(),
        None => code,
    }
}

pub(super) fn reported(category: ReportedCategory, code: Option<String>, message: String) -> ReportedError {
    let code = code.map(truncate_code);
    ReportedError { category, message: Some(message), code, cause: None, retry_after: None, unrecoverable: None }
}

/// A failure of the worker, not of the work.
pub(super) fn system_failure(code: &str, message: String) -> JobOutcome {
    JobOutcome::Fail(reported(ReportedCategory::System, Some(code.to_owned()), message))
}

/// The work is done, but its result cannot be stored: another run would not change that.
pub(super) fn bad_result(message: String) -> JobOutcome {
    JobOutcome::Fail(reported(ReportedCategory::Permanent, Some("bad_result".to_owned()), message))
}

/// What a handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the result of a handler",
    note = "a handler returns `Result<T, HandlerError>` where `T` implements `serde::Serialize`; use `()` without a result"
)]
pub trait IntoOutcome: Sized {
    fn into_outcome(self) -> JobOutcome {
        self.classified_outcome(Classifier::default())
    }

    /// As `into_outcome`, with the worker's classification of errors.
    fn classified_outcome(self, classifier: Classifier<'_>) -> JobOutcome;
}

/// The classification of errors of a worker.
#[derive(Clone, Copy, Default)]
pub struct Classifier<'a>(pub(crate) Option<&'a ClassifyFunction>);

impl std::fmt::Debug for Classifier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Classifier({})", self.0.is_some())
    }
}

impl<T: Serialize, E: Into<HandlerError>> IntoOutcome for Result<T, E> {
    fn classified_outcome(self, classifier: Classifier<'_>) -> JobOutcome {
        let value = match self {
            Ok(value) => value,
            Err(error) => {
                let error: HandlerError = error.into();
                return error.classify_with(classifier.0).into_outcome();
            }
        };
        match to_raw_value(&value) {
            Ok(json) => JobOutcome::Complete((json.get() != "null").then_some(json)),
            Err(error) => bad_result(format!("the result cannot be written as JSON: {error}")),
        }
    }
}

impl IntoOutcome for JobOutcome {
    fn classified_outcome(self, _: Classifier<'_>) -> JobOutcome {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(outcome: JobOutcome) -> ReportedError {
        match outcome {
            JobOutcome::Fail(error) => error,
            JobOutcome::Complete(_) | JobOutcome::Snooze(_) | JobOutcome::Release => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn the_question_mark_is_a_temporary_failure_with_its_causes() {
        #[derive(Debug)]
        struct Outer(std::num::ParseIntError);
        impl std::fmt::Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("cannot read the amount")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let run = || -> Result<u64, HandlerError> { Ok("x".parse().map_err(Outer)?) };
        let error = failed(run().into_outcome());
        assert_eq!(
            (error.category, error.message.as_deref()),
            (ReportedCategory::Temporary, Some("cannot read the amount"))
        );
        assert_eq!(error.cause.as_deref(), Some("invalid digit found in string"));
    }

    #[test]
    fn failures_carry_code_and_delay() {
        let error = HandlerError::temporary("busy").with_code("busy").retry_after(Duration::from_secs(90));
        let error = failed(Err::<(), _>(error).into_outcome());
        assert_eq!(error.code.as_deref(), Some("busy"));
        assert_eq!(error.retry_after, Some(longshore_api::Duration::from_secs(90)));
        let error = failed(Err::<(), _>(HandlerError::permanent("gone", "no such user")).into_outcome());
        assert_eq!((error.category, error.code.as_deref()), (ReportedCategory::Permanent, Some("gone")));
    }

    #[test]
    fn errors_of_the_question_mark_are_classified() {
        let classify: ClassifyFunction = Arc::new(|error| {
            let error = error.downcast_ref::<std::num::ParseIntError>()?;
            Some(HandlerError::permanent("bad_number", error.to_string()))
        });
        let classifier = Classifier(Some(&classify));
        let parse = |text: &str| -> Result<u64, HandlerError> { Ok(text.parse()?) };
        assert_eq!(failed(parse("x").classified_outcome(classifier)).code.as_deref(), Some("bad_number"));
        let other = || -> Result<u64, HandlerError> { Err(std::io::Error::other("x"))? };
        assert_eq!(failed(other().classified_outcome(classifier)).category, ReportedCategory::Temporary);
        let own = Err::<u64, _>(HandlerError::temporary("x"));
        assert_eq!(failed(own.classified_outcome(classifier)).category, ReportedCategory::Temporary);
    }

    #[test]
    fn a_long_code_is_cut() {
        let long = "ä".repeat(300);
        let error = failed(Err::<(), _>(HandlerError::permanent(long.clone(), "x")).into_outcome());
        assert_eq!(error.code.unwrap().chars().count(), 256);
        let error = failed(Err::<(), _>(HandlerError::temporary("x").with_code(long)).into_outcome());
        assert_eq!(error.code.unwrap().chars().count(), 256);
    }

    #[test]
    fn a_result_is_json_and_unit_is_none() {
        let JobOutcome::Complete(Some(result)) = Ok::<_, HandlerError>(vec![1, 2]).into_outcome() else { panic!() };
        assert_eq!(result.get(), "[1,2]");
        assert!(matches!(Ok::<_, HandlerError>(()).into_outcome(), JobOutcome::Complete(None)));
    }
}
