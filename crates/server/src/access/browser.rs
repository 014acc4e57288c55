//! Protection against pages of other sites in a browser on the same machine.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use longshore_api::ErrorCode;

use crate::wire::problem::ApiError;

/// Checks the host name that a server without tokens is addressed by.
///
/// A page of another site can let its own name resolve to 127.0.0.1 (DNS rebinding). Its requests
/// then count as same-origin, and only the name in `Host` shows the difference. An IP address and a
/// name without a dot cannot be such a name.
pub(super) fn check_host(headers: &HeaderMap, allowed: &[String]) -> Result<(), ApiError> {
    let Some(value) = headers.get(header::HOST) else { return Ok(()) };
    let host = value.to_str().map(host_name).unwrap_or(".");
    let is_known = !host.contains('.')
        || host.parse::<IpAddr>().is_ok()
        || host.to_ascii_lowercase().ends_with(".localhost")
        || allowed.iter().any(|name| name.eq_ignore_ascii_case(host));
    if is_known {
        return Ok(());
    }
    let detail = "a server without tokens answers to localhost and IP addresses only (DNS rebinding): \
                  create a token, or start it with --allow-host NAME";
    Err(ApiError::new(ErrorCode::MisdirectedRequest, detail))
}

/// Returns the host without its port, brackets and final dot.
fn host_name(value: &str) -> &str {
    let host = match value.strip_prefix('[') {
        Some(rest) => return rest.split(']').next().unwrap_or(rest),
        None => value.split(':').next().unwrap_or(value),
    };
    host.strip_suffix('.').unwrap_or(host)
}

/// The policy of pages: scripts, styles and images of this server only, and no inline script.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
     connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Adds the headers that keep a browser from misusing a response.
pub(crate) fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let is_page = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    let mut add = |name: HeaderName, value: HeaderValue| {
        headers.entry(name).or_insert(value);
    };
    add(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_page {
        add(header::CONTENT_SECURITY_POLICY, PAGE_POLICY);
        add(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        add(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        add(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
        add(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_sites_are_refused() {
        let allowed = ["queue.example".to_owned()];
        let check = |host: &str| {
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_str(host).unwrap())]);
            check_host(&headers, &allowed).is_ok()
        };
        let known = [
            "localhost",
            "localhost:7070",
            "LOCALHOST",
            "127.0.0.1:7070",
            "[::1]:7070",
            "10.0.0.8",
            "test",
            "app.localhost:1",
            "queue.example",
            "Queue.Example:7070",
            "queue.example.",
        ];
        for host in known {
            assert!(check(host), "{host}");
        }
        let foreign = [
            "evil.test",
            "evil.test:7070",
            "127.0.0.1.evil.test",
            "localhost.evil.test",
            "evil.test.",
            "notlocalhost.com",
        ];
        for host in foreign {
            assert!(!check(host), "{host}");
        }
        assert!(check_host(&HeaderMap::new(), &[]).is_ok(), "a browser always sends the header");
    }
}
