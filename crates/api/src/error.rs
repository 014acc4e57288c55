//! Errors: `application/problem+json`, and the one table of codes.

use serde::{Deserialize, Serialize};

/// Content type of every error.
pub const PROBLEM_JSON: &str = "application/problem+json";

macro_rules! codes {
    ($($variant:ident = $code:literal, $status:literal, $title:literal;)+) => {
        /// Stable names of errors. A code has one status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode { $($variant),+ }

        impl ErrorCode {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status),+ }
            }

            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }

            pub fn from_code(code: &str) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

codes! {
    BadRequest = "bad_request", 400, "The request is not well-formed";
    Validation = "validation", 400, "A field cannot be accepted";
    DependencyCycle = "dependency_cycle", 400, "The dependencies form a cycle";
    DependencyUnknown = "dependency_unknown", 400, "A dependency does not exist";
    DependencyDepth = "dependency_depth", 400, "The chain of dependencies is too long";
    DependencyBreadth = "dependency_breadth", 400, "There are too many dependencies";
    Unauthorized = "unauthorized", 401, "A valid token is needed";
    Forbidden = "forbidden", 403, "The token does not allow this";
    QueueNotFound = "queue_not_found", 404, "There is no such queue";
    JobNotFound = "job_not_found", 404, "There is no such job";
    WorkflowNotFound = "workflow_not_found", 404, "There is no such workflow";
    ScheduleNotFound = "schedule_not_found", 404, "There is no such schedule";
    NotFound = "not_found", 404, "There is nothing at this path";
    MethodNotAllowed = "method_not_allowed", 405, "This path does not take this method";
    StaleLease = "stale_lease", 409, "The lease is not held any more";
    IllegalTransition = "illegal_transition", 409, "The present state does not allow this";
    DuplicateId = "duplicate_id", 409, "The external id is already used";
    PayloadTooLarge = "payload_too_large", 413, "Too many bytes";
    UnsupportedMediaType = "unsupported_media_type", 415, "The body must be application/json";
    QueueFull = "queue_full", 429, "The queue is full";
    RateLimited = "rate_limited", 429, "Too many requests";
    Internal = "internal", 500, "The server has a defect";
    StoreUnavailable = "store_unavailable", 503, "The store cannot do this now";
    SubmissionTimeout = "submission_timeout", 504, "The submission was not acknowledged in time";
}

/// What is known about trying the same call again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RetryAdvice {
    /// It will fail again.
    Never,
    /// Nothing was applied.
    Safe,
    /// It may have been applied: repeat it only with the same idempotency key, or the same lease token.
    Unknown,
}

impl ErrorCode {
    /// What is known from the code alone.
    pub fn retry(self) -> RetryAdvice {
        match self {
            Self::QueueFull | Self::RateLimited | Self::StoreUnavailable => RetryAdvice::Safe,
            Self::Internal | Self::SubmissionTimeout => RetryAdvice::Unknown,
            Self::BadRequest
            | Self::Validation
            | Self::DependencyCycle
            | Self::DependencyUnknown
            | Self::DependencyDepth
            | Self::DependencyBreadth
            | Self::Unauthorized
            | Self::Forbidden
            | Self::QueueNotFound
            | Self::JobNotFound
            | Self::WorkflowNotFound
            | Self::ScheduleNotFound
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::StaleLease
            | Self::IllegalTransition
            | Self::DuplicateId
            | Self::PayloadTooLarge
            | Self::UnsupportedMediaType => RetryAdvice::Never,
        }
    }
}

/// The body of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: u16,
    /// One of the table; text, because a newer server may know more of them.
    pub code: String,
    pub title: String,
    pub detail: String,
    pub retry: RetryAdvice,
    /// The field at fault, as a path (`settings.retry.limit`, `jobs[3].delay`), or the name of a query parameter or header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The values that the field may have, where they are a closed set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// The `x-request-id` of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Of a batch: every member that was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<MemberError>,
}

impl Problem {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank".to_owned(),
            status: code.status(),
            code: code.code().to_owned(),
            title: code.title().to_owned(),
            detail: detail.into(),
            retry: code.retry(),
            field: None,
            allowed: Vec::new(),
            request_id: None,
            errors: Vec::new(),
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Problem {}

/// Why one member of a batch was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberError {
    pub index: usize,
    pub code: String,
    pub detail: String,
    /// As in the problem itself: a path from the body of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_name() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(code.code()), Some(*code));
            assert!((400..600).contains(&code.status()));
        }
        assert_eq!(ErrorCode::from_code("nonsense"), None);
    }

    #[test]
    fn the_body_of_a_problem() {
        let problem = Problem::new(ErrorCode::StaleLease, "the lease has expired");
        let text = serde_json::to_string(&problem).unwrap();
        assert_eq!(
            text,
            r#"{"type":"about:blank","status":409,"code":"stale_lease","title":"The lease is not held any more","detail":"the lease has expired","retry":"never"}"#
        );
        assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), problem);
    }
}
