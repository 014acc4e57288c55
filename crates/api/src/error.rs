//! Errors: `application/problem+json`, and the table of error codes.
//!
//! `docs/errors.md` is generated from the table.

use serde::{Deserialize, Serialize};

/// Content type of every error.
pub const PROBLEM_JSON: &str = "application/problem+json";

macro_rules! codes {
    ($($variant:ident = $code:literal, $status:literal, $title:literal,
        when $cause:literal, do $remedy:literal;)+) => {
        /// Stable code of an error. Each code has one HTTP status.
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

            /// When the server responds with this code.
            pub fn cause(self) -> &'static str {
                match self { $(Self::$variant => $cause),+ }
            }

            /// What a client should do about it.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy),+ }
            }

            pub fn from_code(code: &str) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

codes! {
    BadRequest = "bad_request", 400, "The request is not well-formed",
        when "the body is missing or not JSON, a parameter is given twice, or path or headers are too long",
        do "fix the request";
    Validation = "validation", 400, "A field cannot be accepted",
        when "a field, query parameter or header is unknown, missing or out of range, or a profile locks the setting",
        do "fix the field named in `field`; `allowed` lists the values of a closed set";
    DependencyCycle = "dependency_cycle", 400, "The dependencies form a cycle",
        when "a job of the batch depends on itself through other jobs",
        do "remove a dependency";
    DependencyUnknown = "dependency_unknown", 400, "A dependency does not exist",
        when "`after` or `after_any` names a job that does not exist, or a `ref` that is not in the batch",
        do "check the id or the `ref`";
    DependencyDepth = "dependency_depth", 400, "The chain of dependencies is too long",
        when "a chain of dependencies has more than 100 jobs",
        do "make the chain shorter";
    DependencyBreadth = "dependency_breadth", 400, "There are too many dependencies",
        when "a job has more than 1000 dependencies",
        do "put a job between them";
    Unauthorized = "unauthorized", 401, "A valid token is needed",
        when "the token is missing, unknown, revoked or expired",
        do "send `Authorization: Bearer` with a valid token";
    Forbidden = "forbidden", 403, "The token does not allow this",
        when "the token lacks the action, or a browser sent a change from a page of another origin",
        do "use a token with the action; from a browser, send the request from the same origin";
    QueueNotFound = "queue_not_found", 404, "There is no such queue",
        when "the queue does not exist and is not created by submissions",
        do "create the queue, or check its name";
    JobNotFound = "job_not_found", 404, "There is no such job",
        when "the job does not exist, or retention has removed it",
        do "check the id";
    WorkflowNotFound = "workflow_not_found", 404, "There is no such workflow",
        when "the workflow does not exist, or retention has removed its last member",
        do "check the id";
    ScheduleNotFound = "schedule_not_found", 404, "There is no such schedule",
        when "the schedule does not exist, or was deleted",
        do "create the schedule, or check its name";
    WorkerNotFound = "worker_not_found", 404, "There is no such worker",
        when "no worker of this name has sent a claim or a heartbeat within 24 hours",
        do "check the name in the list of workers";
    TokenNotFound = "token_not_found", 404, "There is no such token",
        when "the token does not exist, or was revoked",
        do "check the id in the list of tokens";
    WebhookNotFound = "webhook_not_found", 404, "There is no such webhook endpoint",
        when "no webhook endpoint has this name",
        do "check the name in the list of webhooks";
    NotFound = "not_found", 404, "There is nothing at this path",
        when "the path is not part of the API, or there is no such delivery",
        do "check the path";
    MethodNotAllowed = "method_not_allowed", 405, "This path does not take this method",
        when "the path exists, with other methods",
        do "use one of the methods in the header `allow`";
    StaleLease = "stale_lease", 409, "The lease is not held any more",
        when "the lease has expired, another worker has claimed the job, or the job does not run",
        do "stop the work and drop its result; the job may run elsewhere";
    IllegalTransition = "illegal_transition", 409, "The present state does not allow this",
        when "the state of the job, queue or workflow does not allow the command",
        do "read the state, then decide";
    DuplicateId = "duplicate_id", 409, "The external id is already used",
        when "a job of the queue has the same `external_id`",
        do "use another id, or read the job that has it";
    PayloadTooLarge = "payload_too_large", 413, "Too many bytes",
        when "the body, or one of payload, result, progress and checkpoint, is too large",
        do "store large data elsewhere and submit a reference";
    UnsupportedMediaType = "unsupported_media_type", 415, "The body must be application/json",
        when "a request with a body has another content type, or a `Content-Encoding`",
        do "send `Content-Type: application/json`";
    MisdirectedRequest = "misdirected_request", 421, "The host name is not one of this server",
        when "a server without tokens is addressed by a host name that it does not know",
        do "use `localhost` or an IP address, create a token, or start the server with `--allow-host NAME`";
    QueueFull = "queue_full", 429, "The queue is full",
        when "the queue already has `max_queued` waiting jobs",
        do "retry with backoff";
    RateLimited = "rate_limited", 429, "Too many requests",
        when "the token has sent more than its rate, or too many large bodies are in flight",
        do "retry with backoff";
    Internal = "internal", 500, "The server has a defect",
        when "the server failed unexpectedly",
        do "report the `request_id`; retry only with the same idempotency key or lease token";
    StoreUnavailable = "store_unavailable", 503, "The store cannot do this now",
        when "the store is stopping, overloaded, read-only, out of disk space or not reachable",
        do "retry with backoff";
    SubmissionTimeout = "submission_timeout", 504, "The submission was not acknowledged in time",
        when "the store did not confirm the submission in time; it may still be applied",
        do "submit again with the same idempotency key";
}

/// Whether the same request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RetryAdvice {
    /// The request would fail again.
    Never,
    /// The request changed nothing.
    Safe,
    /// The request may have been applied. Repeat it only with the same idempotency key or lease
    /// token.
    Unknown,
}

impl ErrorCode {
    /// Advice that follows from the code alone; a response may know more.
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
            | Self::WorkerNotFound
            | Self::TokenNotFound
            | Self::MisdirectedRequest
            | Self::WebhookNotFound
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

/// Body of an error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Always `about:blank`; `code` identifies the error.
    #[serde(rename = "type")]
    pub kind: String,
    /// HTTP status.
    pub status: u16,
    /// Error code. A newer server may have codes that this client does not know.
    pub code: String,
    /// Meaning of the code, for people.
    pub title: String,
    /// What was wrong with this request, for people.
    pub detail: String,
    /// Whether the same request may be sent again.
    pub retry: RetryAdvice,
    /// Field at fault, as a path (`settings.retry.limit`, `jobs[3].delay`), or the name of a query
    /// parameter or header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Allowed values of the field, if they are a closed set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// The `x-request-id` of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// For a batch: every member that was refused.
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
    /// Index of the member, from 0.
    pub index: usize,
    /// Error code.
    pub code: String,
    /// What was wrong, for people.
    pub detail: String,
    /// Field at fault, as a path from the body of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Allowed values of the field, if they are a closed set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_round_trips() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(code.code()), Some(*code));
            assert!((400..600).contains(&code.status()));
        }
        assert_eq!(ErrorCode::from_code("nonsense"), None);
    }

    #[test]
    fn problem_as_json() {
        let problem = Problem::new(ErrorCode::StaleLease, "the lease has expired");
        let text = serde_json::to_string(&problem).unwrap();
        assert_eq!(
            text,
            r#"{"type":"about:blank","status":409,"code":"stale_lease","title":"The lease is not held any more","detail":"the lease has expired","retry":"never"}"#
        );
        assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), problem);
    }
}
