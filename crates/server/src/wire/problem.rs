//! Errors as problem+json: refusals of the rules, errors of the store, invalid requests.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longshore_api::error::PROBLEM_JSON;
use longshore_api::{ErrorCode, MemberError, Problem, RetryAdvice};
use longshore_core::refusal::{Invalid, Refusal};
use longshore_engine::BatchRefusal;
use longshore_store::StoreError;

/// An error response.
#[derive(Debug)]
pub struct ApiError(Box<Problem>, RetryAfter);

/// Seconds after which a client may retry: a hint only.
#[derive(Clone, Copy, Debug)]
struct RetryAfter(u32);

impl Default for RetryAfter {
    fn default() -> Self {
        Self(1)
    }
}

impl ApiError {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(code, detail)), RetryAfter::default())
    }

    pub(crate) fn validation(field: &str, reason: &str) -> Self {
        ItemError::validation(field, reason).into()
    }

    /// A value outside of a closed set.
    pub(crate) fn not_one_of(field: &str, words: &[&str]) -> Self {
        let mut error = Self::validation(field, &format!("must be one of {}", words.join(", ")));
        error.0.allowed = words.iter().map(|word| (*word).to_owned()).collect();
        error
    }

    /// A list with a value outside of a closed set.
    pub(crate) fn not_some_of(field: &str, words: &[&str]) -> Self {
        let reason = format!("must be one or several of {}, separated by commas", words.join(", "));
        let mut error = Self::validation(field, &reason);
        error.0.allowed = words.iter().map(|word| (*word).to_owned()).collect();
        error
    }

    /// Prefixes the field with the path of its parent.
    pub(crate) fn inside(mut self, parent: &str) -> Self {
        if let Some(field) = self.0.field.take() {
            let path = join(parent, &field);
            if let Some(reason) = self.0.detail.strip_prefix(&format!("\"{field}\"")) {
                self.0.detail = format!("\"{path}\"{reason}");
            }
            self.0.field = Some(path);
        }
        self
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, detail)
    }

    pub fn problem(&self) -> &Problem {
        &self.0
    }

    pub(crate) fn retry(mut self, retry: RetryAdvice) -> Self {
        self.0.retry = retry;
        self
    }

    /// Sets the seconds of `Retry-After`, which 429 and 503 carry.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.1 = RetryAfter(u32::try_from(seconds).unwrap_or(u32::MAX).max(1));
        self
    }

    #[cfg(test)]
    pub(crate) fn retry_after_seconds(&self) -> u64 {
        u64::from(self.1.0)
    }

    /// A refused batch: code and detail of the first error, and the list of all errors.
    ///
    /// `path` returns the JSON path of an item.
    pub(crate) fn batch(errors: Vec<(usize, ItemError)>, path: impl Fn(usize) -> String) -> Self {
        let item = |(index, error): (usize, ItemError)| MemberError {
            index,
            code: error.code.code().to_owned(),
            detail: error.detail,
            field: match error.field {
                Some(field) => Some(join(&path(index), &field)),
                // The item itself is invalid: it is not an object.
                None => (error.code == ErrorCode::Validation).then(|| path(index)),
            },
            allowed: error.allowed,
        };
        let code = errors.first().map_or(ErrorCode::Internal, |(_, first)| first.code);
        let errors: Vec<MemberError> = errors.into_iter().map(item).collect();
        let mut problem = match errors.first() {
            Some(first) => Problem::new(code, format!("job {} of the batch: {}", first.index, first.detail)),
            None => Problem::new(code, "internal error: batch refused without a reason"),
        };
        problem.field = errors.first().and_then(|first| first.field.clone());
        problem.allowed = errors.first().map(|first| first.allowed.clone()).unwrap_or_default();
        problem.errors = errors;
        Self(Box::new(problem), RetryAfter::default())
    }
}

/// The error of one item of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ItemError {
    pub code: ErrorCode,
    pub detail: String,
    /// The invalid field, as a path inside the item.
    pub field: Option<String>,
    /// The values of a closed set.
    pub allowed: Vec<String>,
}

impl ItemError {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, allowed: Vec::new() }
    }

    pub(crate) fn validation(field: &str, reason: &str) -> Self {
        let detail = format!("\"{field}\" {reason}");
        Self { field: Some(field.to_owned()), ..Self::new(ErrorCode::Validation, detail) }
    }
}

/// Joins two paths; an index follows without a dot.
fn join(parent: &str, field: &str) -> String {
    if field.starts_with('[') { format!("{parent}{field}") } else { format!("{parent}.{field}") }
}

impl From<ItemError> for ApiError {
    fn from(error: ItemError) -> Self {
        let mut problem = Problem::new(error.code, error.detail);
        problem.field = error.field;
        problem.allowed = error.allowed;
        Self(Box::new(problem), RetryAfter::default())
    }
}

impl From<Refusal> for ItemError {
    fn from(refusal: Refusal) -> Self {
        let field = refusal.field().map(str::to_owned);
        Self { field, ..Self::new(code_of(&refusal), refusal.to_string()) }
    }
}

impl From<Invalid> for ItemError {
    fn from(invalid: Invalid) -> Self {
        Refusal::from(invalid).into()
    }
}

/// Maps every refusal of the rules to its code on the wire.
pub(crate) fn code_of(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::Invalid(_) => ErrorCode::Validation,
        Refusal::PayloadTooLarge { .. } => ErrorCode::PayloadTooLarge,
        Refusal::QueueNotFound => ErrorCode::QueueNotFound,
        Refusal::JobNotFound => ErrorCode::JobNotFound,
        Refusal::WorkflowNotFound => ErrorCode::WorkflowNotFound,
        Refusal::StaleLease(_) => ErrorCode::StaleLease,
        Refusal::IllegalTransition { .. }
        | Refusal::StatusChange { .. }
        | Refusal::Illegal(_)
        | Refusal::QueueNotEmpty { .. } => ErrorCode::IllegalTransition,
        Refusal::DuplicateId => ErrorCode::DuplicateId,
        Refusal::QueueFull { .. } => ErrorCode::QueueFull,
        Refusal::DependencyUnknown { .. } => ErrorCode::DependencyUnknown,
        Refusal::DependencyCycle(_) => ErrorCode::DependencyCycle,
        Refusal::DependencyDepth => ErrorCode::DependencyDepth,
        Refusal::DependencyBreadth { .. } => ErrorCode::DependencyBreadth,
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        ItemError::from(refusal).into()
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        Refusal::from(invalid).into()
    }
}

/// A refusal of a batch whose items are at `jobs[index]`.
impl From<BatchRefusal> for ApiError {
    fn from(refusal: BatchRefusal) -> Self {
        if refusal.errors.is_empty() {
            return refusal.first.into();
        }
        let errors = refusal.errors.into_iter().map(|(index, refusal)| (index, refusal.into())).collect();
        Self::batch(errors, |index| format!("jobs[{index}]"))
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let retry = if error.may_have_applied() { RetryAdvice::Unknown } else { RetryAdvice::Safe };
        Self::new(ErrorCode::StoreUnavailable, error.to_string()).retry(retry)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(problem, RetryAfter(seconds)) = self;
        let problem = *problem;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A problem has only texts and numbers: serializing it cannot fail.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // The connection adds the request id to it.
        response.extensions_mut().insert(problem);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_core::ocypod::status::Status;
    use longshore_core::refusal::Stale;
    use longshore_core::state::StateKind;

    #[test]
    fn rules_and_wire_have_the_same_codes() {
        let refusals = [
            Refusal::invalid("x", "y"),
            Refusal::PayloadTooLarge { field: "payload", bytes: 2, bytes_max: 1 },
            Refusal::QueueNotFound,
            Refusal::JobNotFound,
            Refusal::WorkflowNotFound,
            Refusal::StaleLease(Stale::Expired),
            Refusal::IllegalTransition { from: StateKind::Completed, verb: "claimed" },
            Refusal::StatusChange { from: Status::Completed, to: Status::Queued },
            Refusal::Illegal("no"),
            Refusal::QueueNotEmpty { jobs: 1 },
            Refusal::DuplicateId,
            Refusal::QueueFull { max_queued: 1 },
            Refusal::DependencyUnknown { field: String::new(), name: String::new() },
            Refusal::DependencyCycle(String::new()),
            Refusal::DependencyDepth,
            Refusal::DependencyBreadth { given: 1_001 },
        ];
        for refusal in refusals {
            assert_eq!(code_of(&refusal).code(), refusal.code());
        }
    }

    #[test]
    fn store_errors_have_the_right_retry_advice() {
        let advice = |error: StoreError| ApiError::from(error).problem().retry;
        assert_eq!(advice(StoreError::not_applied(std::io::Error::other("full"))), RetryAdvice::Safe);
        assert_eq!(advice(StoreError::unknown(std::io::Error::other("lost"))), RetryAdvice::Unknown);
        assert_eq!(advice(StoreError::Poisoned), RetryAdvice::Safe);
    }
}
