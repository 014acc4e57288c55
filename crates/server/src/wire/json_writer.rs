//! Writes JSON by hand, for the responses of the hot path.
//!
//! serde builds the same text from wire types, at several times the cost. Tests compare the two.

use longshore_api::ErrorCode;
use longshore_core::Timestamp;
use longshore_core::id::LeaseToken;
use serde::Serialize;

use super::problem::ApiError;
use crate::convert::time;

/// A JSON text that grows. Names of fields are written as they are.
#[derive(Default)]
pub(crate) struct JsonWriter {
    bytes: Vec<u8>,
    has_failed: bool,
}

const HEX: &[u8; 16] = b"0123456789abcdef";

impl JsonWriter {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), has_failed: false }
    }

    /// Returns the text.
    pub(crate) fn finish(self) -> Result<Vec<u8>, ApiError> {
        if self.has_failed {
            return Err(ApiError::new(ErrorCode::Internal, "internal error: cannot serialize the response"));
        }
        Ok(self.bytes)
    }

    /// Writes an object. `fields` writes each field as [`JsonWriter::field`] and a value.
    pub(crate) fn object(&mut self, fields: impl FnOnce(&mut Self)) {
        self.bytes.push(b'{');
        fields(self);
        self.bytes.push(b'}');
    }

    /// Writes an array of the values that `item` writes.
    pub(crate) fn array<T>(&mut self, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut Self, T)) {
        self.bytes.push(b'[');
        for (index, value) in items.into_iter().enumerate() {
            if index > 0 {
                self.bytes.push(b',');
            }
            item(self, value);
        }
        self.bytes.push(b']');
    }

    /// Starts a field. Its value follows.
    pub(crate) fn field(&mut self, name: &'static str) -> &mut Self {
        // Only an object without fields ends with its brace.
        if self.bytes.last() != Some(&b'{') {
            self.bytes.push(b',');
        }
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b"\":");
        self
    }

    /// Writes a text that needs no escapes, such as a word of a closed set.
    pub(crate) fn word(&mut self, word: &str) {
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(word.as_bytes());
        self.bytes.push(b'"');
    }

    /// Writes any text.
    pub(crate) fn text(&mut self, text: &str) {
        if text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
            self.value(&text);
        } else {
            self.word(text);
        }
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.raw(if value { b"true" } else { b"false" });
    }

    pub(crate) fn null(&mut self) {
        self.raw(b"null");
    }

    /// Writes text that is JSON already.
    pub(crate) fn raw(&mut self, json: &[u8]) {
        self.bytes.extend_from_slice(json);
    }

    /// Writes a UUID of 16 bytes.
    pub(crate) fn uuid(&mut self, id: &[u8; 16]) {
        self.bytes.push(b'"');
        for (index, byte) in id.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                self.bytes.push(b'-');
            }
            self.bytes.extend_from_slice(&hex(*byte));
        }
        self.bytes.push(b'"');
    }

    pub(crate) fn token(&mut self, token: &LeaseToken) {
        self.bytes.push(b'"');
        token.as_bytes().iter().for_each(|byte| self.bytes.extend_from_slice(&hex(*byte)));
        self.bytes.push(b'"');
    }

    pub(crate) fn time(&mut self, at: Timestamp) {
        self.value(&time(at));
    }

    /// Writes a time, or `null`.
    pub(crate) fn time_or_null(&mut self, at: Option<Timestamp>) {
        match at {
            Some(at) => self.time(at),
            None => self.null(),
        }
    }

    /// Writes a value with serde.
    pub(crate) fn value(&mut self, value: &impl Serialize) {
        self.has_failed |= serde_json::to_writer(&mut self.bytes, value).is_err();
    }
}

#[expect(clippy::indexing_slicing, reason = "half a byte is below 16")]
fn hex(byte: u8) -> [u8; 2] {
    [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]]
}

#[cfg(test)]
mod tests {
    use longshore_core::id::JobId;

    use super::*;

    fn written(write: impl FnOnce(&mut JsonWriter)) -> String {
        let mut json = JsonWriter::default();
        write(&mut json);
        String::from_utf8(json.finish().unwrap()).unwrap()
    }

    #[test]
    fn text_is_the_same_as_by_serde() {
        for text in ["", "plain", "Größe", "a\"b", "a\\b", "a\nb", "\u{1}", "\u{7f}", "</x>"] {
            assert_eq!(written(|json| json.text(text)), serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn ids_and_tokens_are_the_same_as_displayed() {
        let bytes: [u8; 16] = std::array::from_fn(|index| u8::try_from(index * 17).unwrap());
        let (id, token) = (JobId::from_bytes(bytes), LeaseToken::from_bytes(bytes));
        assert_eq!(written(|json| json.uuid(id.as_bytes())), format!("\"{id}\""));
        assert_eq!(written(|json| json.token(&token)), format!("\"{token}\""));
    }

    #[test]
    fn fields_and_items_are_separated() {
        let text = written(|json| {
            json.object(|json| {
                json.field("a").array([1, 2], |json, number| json.value(&number));
                json.field("b").object(|_| {});
                json.field("c").array([0; 0], |json, number| json.value(&number));
                json.field("d").boolean(true);
                json.field("e").time_or_null(None);
                json.field("f").time(Timestamp::from_millis(0));
            });
        });
        assert_eq!(text, r#"{"a":[1,2],"b":{},"c":[],"d":true,"e":null,"f":"1970-01-01T00:00:00.000Z"}"#);
    }
}
