//! `x-request-id`: every response has one, and a problem document repeats it.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use longshore_api::Problem;

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id that is accepted from a client.
const CLIENT_ID_BYTES_MAX: usize = 128;

/// Generates ids from a random seed per process and a counter.
#[derive(Debug)]
pub(crate) struct RequestIds {
    /// The seed in hexadecimal digits, and a dash.
    prefix: String,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(seed: u64) -> Self {
        Self { prefix: format!("{seed:016x}-"), next: AtomicU64::new(0) }
    }

    /// Returns the client's id if it is valid, otherwise a new id.
    pub(crate) fn choose(&self, headers: &HeaderMap) -> HeaderValue {
        let mut values = headers.get_all(X_REQUEST_ID).iter();
        match (values.next(), values.next()) {
            (Some(id), None) if is_valid(id) => id.clone(),
            _ => self.generate(),
        }
    }

    fn generate(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(self.prefix.len() + 16);
        id.push_str(&self.prefix);
        // Without the formatting machinery: every request has an id.
        let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
        let digit = |place: u32| char::from_digit(((number >> (4 * place)) & 0xf) as u32, 16);
        id.extend((0..digits).rev().filter_map(digit));
        // Hexadecimal digits and a dash are valid in a header.
        HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("none"))
    }
}

/// 1-128 characters of visible ASCII.
fn is_valid(id: &HeaderValue) -> bool {
    (1..=CLIENT_ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

/// Adds the id to the response, and to the body of a problem document.
pub(crate) fn stamp(mut response: Response, id: HeaderValue) -> Response {
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.request_id = id.to_str().ok().map(str::to_owned);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        *response.body_mut() = Body::from(body);
    }
    response.headers_mut().insert(X_REQUEST_ID, id);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(ids: &RequestIds, given: &[&[u8]]) -> String {
        let mut headers = HeaderMap::new();
        for id in given {
            headers.append(X_REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
        }
        ids.choose(&headers).to_str().unwrap().to_owned()
    }

    #[test]
    fn a_valid_id_is_kept_and_any_other_is_replaced() {
        let ids = RequestIds::new(0xab);
        let longest = [b'x'; CLIENT_ID_BYTES_MAX];
        assert_eq!(chosen(&ids, &[b"my-id/7"]), "my-id/7");
        assert_eq!(chosen(&ids, &[&longest]).len(), CLIENT_ID_BYTES_MAX);
        let invalid: [&[&[u8]]; 6] =
            [&[], &[b""], &[b"two words"], &["\u{e4}".as_bytes()], &[&[b'x'; 129]], &[b"a", b"b"]];
        for (number, given) in invalid.into_iter().enumerate() {
            assert_eq!(chosen(&ids, given), format!("00000000000000ab-{number:x}"));
        }
        for number in [0xf, 0x10, 0x1234_5678_9abc, u64::MAX] {
            ids.next.store(number, Ordering::Relaxed);
            assert_eq!(chosen(&ids, &[]), format!("00000000000000ab-{number:x}"));
        }
    }
}
