//! Timestamps on the wire; durations are those of [`longshore_types`].

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use longshore_types::{Duration, ParseError};

/// Milliseconds since the Unix epoch; on the wire RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A value outside the range of the calendar is shown as the nearest end of the range.
        let limit = if self.0 > 0 { jiff::Timestamp::MAX } else { jiff::Timestamp::MIN };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(self.0).unwrap_or(limit))
    }
}

const TIME_FORMAT: &str = "a time such as \"2026-11-15T18:08:27.123Z\"";

impl FromStr for Time {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // RFC 3339 only: the library accepts more formats.
        let byte = |index: usize| text.as_bytes().get(index).map(u8::to_ascii_uppercase);
        let has_separators =
            (byte(4), byte(10), byte(13), byte(16)) == (Some(b'-'), Some(b'T'), Some(b':'), Some(b':'));
        let is_rfc3339 = has_separators && text.len() <= 40 && !text.contains('[');
        let parsed = is_rfc3339.then(|| text.parse::<jiff::Timestamp>().ok()).flatten();
        parsed.map(|at| Self(at.as_millisecond())).ok_or(ParseError(TIME_FORMAT))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeVisitor;
        impl Visitor<'_> for TimeVisitor {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(TIME_FORMAT)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map_err(|error: ParseError| E::custom(format_args!("expected {error}")))
            }
        }
        deserializer.deserialize_str(TimeVisitor)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use super::Time;
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    use utoipa::openapi::{RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    impl PartialSchema for Time {
        fn schema() -> RefOr<Schema> {
            let text = ObjectBuilder::new().schema_type(Type::String).description(Some("RFC 3339, UTC, milliseconds"));
            text.examples(["2026-11-15T18:08:27.123Z"]).into()
        }
    }

    impl ToSchema for Time {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_rfc_3339_with_milliseconds() {
        let text = "2026-11-15T18:08:27.123Z";
        let time: Time = text.parse().unwrap();
        assert_eq!((time.0, time.to_string()), (1_794_766_107_123, text.to_owned()));
        assert_eq!("2026-11-15T20:08:27.123+02:00".parse(), Ok(time));
        assert_eq!("2026-11-15T18:08:27.1239999Z".parse(), Ok(time));
        assert_eq!(Time(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Time(i64::MAX).to_string(), "9999-12-30T22:00:00.999Z");
        for bad in ["", "2026-11-15", "2026-11-15T18:08", "2026-13-15T18:08:27Z", "1794766107", "20261115T180827Z"] {
            assert!(bad.parse::<Time>().is_err(), "{bad:?}");
        }
        assert!("2026-11-15T18:08:27.123".parse::<Time>().is_err(), "a timestamp needs a time zone");
        assert!("2026-11-15 18:08:27Z".parse::<Time>().is_err());
    }
}
