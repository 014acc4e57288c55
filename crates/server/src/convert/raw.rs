//! JSON values of users, which are stored and returned byte for byte.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use longshore_core::submit::Payload;
use serde_json::value::RawValue;

/// Returns the bytes of a value without a copy.
pub(crate) fn bytes(value: Box<RawValue>) -> Bytes {
    Bytes::from(Box::<str>::from(value).into_boxed_bytes())
}

/// Returns stored JSON. Invalid bytes, which other programs may have written, become `null`.
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

/// Returns a payload for one of its two fields, `payload` or `payload_base64`.
pub(crate) fn payload(payload: &Payload) -> (Option<Box<RawValue>>, Option<String>) {
    match payload {
        Payload::Json(bytes) => (Some(to_raw_json(bytes)), None),
        Payload::Binary(bytes) => (None, Some(to_base64(bytes))),
    }
}
