//! The URL of a receiver: what a callback URL or a webhook endpoint may be.
//!
//! The check is about form alone. Which addresses may be dialled is decided when a delivery
//! connects, because a name may resolve to another address by then.

use crate::id::validate_length;
use crate::limits::CALLBACK_URL_CHARS_MAX;
use crate::refusal::Invalid;

/// Checks a URL: http or https, with a host, without user info and fragment.
///
/// Spaces, control characters and backslashes are refused too, because parsers disagree about them.
pub fn validate_target_url(field: &'static str, url: &str) -> Result<(), Invalid> {
    validate_length(field, url, CALLBACK_URL_CHARS_MAX)?;
    let invalid = |reason: &'static str| Err(Invalid::new(field, reason));
    let Some(rest) = strip_scheme(url) else {
        return invalid("must be a URL that starts with http:// or https://");
    };
    if url.contains('#') {
        return invalid("must have no fragment");
    }
    if url.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return invalid("must have no spaces, control characters or backslashes");
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return invalid("must have no user name or password");
    }
    if is_host_and_port(authority) {
        return Ok(());
    }
    invalid("must have a host, and a port of 1 to 65535 if it has one")
}

/// Returns the host of a URL in lower case, without its port. The URL has passed
/// [`validate_target_url`].
pub fn host_of(url: &str) -> String {
    let rest = strip_scheme(url).unwrap_or(url);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.split_once(']') {
        Some((address, _)) => address.trim_start_matches('['),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.to_ascii_lowercase()
}

fn strip_scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let is_known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    is_known.then_some(rest)
}

fn is_host_and_port(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[') {
        Some(literal) => match literal.split_once(']') {
            Some((address, rest)) if rest.is_empty() || rest.starts_with(':') => (address, rest.strip_prefix(':')),
            Some(_) | None => return false,
        },
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    // An empty port is the default one, as in every browser.
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok_and(|port| port > 0);
    !host.is_empty() && !host.contains(['[', ']']) && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_receivers_are_accepted() {
        for url in [
            "http://a",
            "https://example.org/hook?a=b&c=%20",
            "HTTPS://Example.ORG:8443",
            "http://127.0.0.1:9000/",
            "http://[::1]:80/x",
            "http://[2001:db8::1]",
            "http://h:/x",
            "http://h?u=a@b",
            "http://h/a@b:c",
        ] {
            assert_eq!(validate_target_url("url", url), Ok(()), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_with_the_field() {
        let long = format!("http://h/{}", "x".repeat(2_048));
        for url in [
            "",
            "u",
            "//h/x",
            "ftp://h/x",
            "file:///etc/passwd",
            "http:/h",
            "http://",
            "http:///x",
            "http://?x",
            "http://:80",
            "http://u@h/",
            "http://u:p@h/",
            "http://@h/",
            "http://h/x#f",
            "http://h#",
            "http://h:0",
            "http://h:65536",
            "http://h:8x",
            "http://[::1",
            "http://[::1]x",
            "http://[]",
            "http://h/a b",
            "http://h\\@x/",
            "http://h/\n",
            "http://h/\u{0}",
            " http://h",
            "javascript:alert(1)//http://h",
            &long,
        ] {
            assert_eq!(validate_target_url("url", url).map_err(|invalid| invalid.field), Err("url".into()), "{url}");
        }
    }

    #[test]
    fn hosts() {
        for (url, host) in
            [("http://A.b:80/x", "a.b"), ("https://[::1]:80", "::1"), ("http://h?x", "h"), ("http://h/x:y", "h")]
        {
            assert_eq!(host_of(url), host);
        }
    }
}
