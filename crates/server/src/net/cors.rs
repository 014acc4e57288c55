//! Pages of other origins that the configuration names: preflight requests and response headers.
//!
//! Without such origins no response has a CORS header. Credentials are never allowed: the API has
//! no cookies.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
const HEADERS: HeaderValue = HeaderValue::from_static("authorization, content-type, last-event-id, x-request-id");
const EXPOSED: HeaderValue = HeaderValue::from_static("retry-after, x-request-id");
/// How long a browser may keep the answer to a preflight request: ten minutes.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const VARY: HeaderValue = HeaderValue::from_static("origin");

/// Returns the origin of a request if the configuration names it. Origins are compared exactly.
pub(super) fn listed_origin(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    if origins.is_empty() {
        return None;
    }
    let mut values = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), None) = (values.next(), values.next()) else { return None };
    origins.iter().any(|listed| listed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

/// Whether a browser asks what it may send.
pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers a preflight request of a listed origin.
pub(super) fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    response
}

/// Lets the page of a listed origin read the response.
pub(super) fn allow(mut response: Response, origin: HeaderValue) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(header::VARY, VARY);
    response
}
