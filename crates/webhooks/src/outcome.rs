//! What the response of a receiver means for its delivery.

use std::fmt;
use std::time::{Duration, SystemTime};

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The receiver answered with this status.
    Response { status: u16, retry_after: Option<Duration> },
    /// There was no response.
    Failure(DeliveryFailure),
}

/// Why there was no response. The texts are stable: they are shown in the log of the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryFailure {
    /// An address of the host is in a network that the operator has not allowed.
    AddressNotAllowed,
    /// The operator has not allowed the scheme or the port of the URL.
    UrlNotAllowed,
    /// The URL cannot be used, for example because of an invalid host.
    InvalidUrl,
    NameNotResolved,
    ConnectionRefused,
    ConnectionFailed,
    TlsFailed,
    /// The receiver closed the connection or sent something other than HTTP.
    InvalidResponse,
    Timeout,
}

impl DeliveryFailure {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddressNotAllowed => "address_not_allowed",
            Self::UrlNotAllowed => "url_not_allowed",
            Self::InvalidUrl => "invalid_url",
            Self::NameNotResolved => "name_not_resolved",
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectionFailed => "connection_failed",
            Self::TlsFailed => "tls_failed",
            Self::InvalidResponse => "invalid_response",
            Self::Timeout => "timeout",
        }
    }
}

impl fmt::Display for DeliveryFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptVerdict {
    Delivered,
    /// Try again by the plan, after this pause at least.
    Retry {
        retry_after: Option<Duration>,
    },
    /// No further attempt.
    Final,
    /// The receiver wants no further messages (410).
    Gone,
}

impl AttemptResult {
    pub fn verdict(&self) -> AttemptVerdict {
        match self {
            Self::Response { status: 200..=299, .. } => AttemptVerdict::Delivered,
            Self::Response { status: 410, .. } => AttemptVerdict::Gone,
            // A redirect is a failure: the new place was not checked, and was not configured.
            Self::Response { retry_after, .. } => AttemptVerdict::Retry { retry_after: *retry_after },
            Self::Failure(
                DeliveryFailure::AddressNotAllowed | DeliveryFailure::UrlNotAllowed | DeliveryFailure::InvalidUrl,
            ) => AttemptVerdict::Final,
            Self::Failure(
                DeliveryFailure::NameNotResolved
                | DeliveryFailure::ConnectionRefused
                | DeliveryFailure::ConnectionFailed
                | DeliveryFailure::TlsFailed
                | DeliveryFailure::InvalidResponse
                | DeliveryFailure::Timeout,
            ) => AttemptVerdict::Retry { retry_after: None },
        }
    }

    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Response { status, .. } => Some(*status),
            Self::Failure(_) => None,
        }
    }

    /// Returns the text of the delivery log: `None` for a success.
    pub fn error(&self) -> Option<&'static str> {
        match self {
            Self::Response { status: 200..=299, .. } => None,
            Self::Response { status: 300..=399, .. } => Some("redirect"),
            Self::Response { status: 410, .. } => Some("gone"),
            Self::Response { .. } => Some("status"),
            Self::Failure(failure) => Some(failure.as_str()),
        }
    }
}

/// Reads `Retry-After`: seconds or an HTTP date. Returns `None` for anything else.
pub fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is longer than any bound.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let response = |status| AttemptResult::Response { status, retry_after: None }.verdict();
        for status in 100..=599 {
            let expected = match status {
                200..=299 => AttemptVerdict::Delivered,
                410 => AttemptVerdict::Gone,
                _ => AttemptVerdict::Retry { retry_after: None },
            };
            assert_eq!(response(status), expected, "{status}");
        }
        assert_eq!(AttemptResult::Failure(DeliveryFailure::AddressNotAllowed).verdict(), AttemptVerdict::Final);
        let pause = Some(Duration::from_secs(7));
        let busy = AttemptResult::Response { status: 429, retry_after: pause };
        assert_eq!(busy.verdict(), AttemptVerdict::Retry { retry_after: pause });
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let parsed = |text| parse_retry_after(text, now).map(|pause| pause.as_secs());
        assert_eq!(parsed("120"), Some(120));
        assert_eq!(parsed(" 0 "), Some(0));
        assert_eq!(parsed("99999999999999999999999"), Some(u64::MAX));
        assert_eq!(parsed("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(parsed("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        for invalid in ["", "-1", "1.5", "soon", "+5"] {
            assert_eq!(parsed(invalid), None, "{invalid}");
        }
    }
}
