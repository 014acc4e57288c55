//! JSON that belongs to users: kept as bytes inside, shown as it was given.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longshore_core::submit::Payload;
use serde_json::value::RawValue;

/// The bytes of a value, without copying them.
pub(crate) fn bytes(value: Box<RawValue>) -> Bytes {
    Bytes::from(Box::<str>::from(value).into_boxed_bytes())
}

/// Bytes that were once given as JSON. What is not (a store may have been written by others) is shown as `null`.
pub(crate) fn to_raw_json(bytes: &Bytes) -> Box<RawValue> {
    let text = std::str::from_utf8(bytes).unwrap_or("null").to_owned();
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

pub(crate) fn from_base64(text: &str) -> Option<Bytes> {
    STANDARD.decode(text).ok().map(Bytes::from)
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A payload in one of its two fields: `payload`, or `payload_base64`.
pub(crate) fn payload(payload: &Payload) -> (Option<Box<RawValue>>, Option<String>) {
    match payload {
        Payload::Json(bytes) => (Some(to_raw_json(bytes)), None),
        Payload::Binary(bytes) => (None, Some(to_base64(bytes))),
    }
}
