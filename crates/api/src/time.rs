//! Instants and lengths of time on the wire.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant, in milliseconds since the Unix epoch; on the wire RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Outside of the calendar's range its nearest end is shown.
        let end = if self.0 > 0 { jiff::Timestamp::MAX } else { jiff::Timestamp::MIN };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(self.0).unwrap_or(end))
    }
}

/// What a time or a duration should have looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError(pub &'static str);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ParseError {}

const TIME_EXAMPLE: &str = "a time such as \"2026-11-15T18:08:27.123Z\"";
const DURATION_EXAMPLE: &str = "a duration such as \"1h15m5s\" (units w, d, h, m, s, ms) or a number of seconds";
const DURATION_LONG: &str = "a duration of at most 36500d";

impl FromStr for Time {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // RFC 3339 only: the library reads more than that.
        let byte = |place: usize| text.as_bytes().get(place).map(u8::to_ascii_uppercase);
        let marks = (byte(4), byte(10), byte(13), byte(16)) == (Some(b'-'), Some(b'T'), Some(b':'), Some(b':'));
        let shaped = marks && text.len() <= 40 && !text.contains('[');
        let parsed = shaped.then(|| text.parse::<jiff::Timestamp>().ok()).flatten();
        parsed.map(|at| Self(at.as_millisecond())).ok_or(ParseError(TIME_EXAMPLE))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(TIME_EXAMPLE)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                text.parse().map_err(|malformed: ParseError| E::custom(format_args!("expected {malformed}")))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A length of time in milliseconds. `0s` means "switched off" wherever a setting can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub u64);

const DAY: u64 = 86_400_000;
const UNITS: [(&str, u64); 6] = [("ms", 1), ("w", 7 * DAY), ("d", DAY), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

impl Duration {
    /// The longest that any field takes.
    pub const MAX: Self = Self(36_500 * DAY);

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000)
    }

    pub const fn as_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }

    fn bounded(millis: u64) -> Result<Self, ParseError> {
        if millis <= Self::MAX.0 { Ok(Self(millis)) } else { Err(ParseError(DURATION_LONG)) }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within range, checked before")]
    fn from_seconds(seconds: f64) -> Result<Self, ParseError> {
        if !seconds.is_finite() || seconds < 0.0 {
            return Err(ParseError(DURATION_EXAMPLE));
        }
        let millis = (seconds * 1_000.0).round();
        if millis > 1e16 { Err(ParseError(DURATION_LONG)) } else { Self::bounded(millis as u64) }
    }
}

impl FromStr for Duration {
    type Err = ParseError;

    /// Concatenated units, spaces allowed: `1h15m5s`, `3w 2d`, `500ms`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let malformed = || ParseError(DURATION_EXAMPLE);
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(malformed());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = rest.split_at(digits);
            if number.is_empty() {
                return Err(malformed());
            }
            let number: u64 = number.parse().map_err(|_| ParseError(DURATION_LONG))?;
            let tail = tail.trim_start();
            let (unit, millis) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit)).ok_or_else(malformed)?;
            let part = number.checked_mul(*millis).ok_or(ParseError(DURATION_LONG))?;
            total = total.checked_add(part).ok_or(ParseError(DURATION_LONG))?;
            rest = tail.strip_prefix(unit).unwrap_or_default().trim_start();
        }
        Self::bounded(total)
    }
}

impl fmt::Display for Duration {
    /// The grammar that is read, without weeks; a day alone stays `24h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let days = if self.0 > DAY { self.0 / DAY } else { 0 };
        let rest = self.0 - days * DAY;
        let parts = [
            (days, "d"),
            (rest / 3_600_000, "h"),
            (rest / 60_000 % 60, "m"),
            (rest / 1_000 % 60, "s"),
            (rest % 1_000, "ms"),
        ];
        parts.into_iter().filter(|(count, _)| *count > 0).try_for_each(|(count, unit)| write!(f, "{count}{unit}"))
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrSeconds;
        fn wrong<E: Error>(malformed: ParseError) -> E {
            E::custom(format_args!("expected {malformed}"))
        }
        impl Visitor<'_> for TextOrSeconds {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(DURATION_EXAMPLE)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
                text.parse().map_err(wrong)
            }

            fn visit_u64<E: Error>(self, seconds: u64) -> Result<Duration, E> {
                let millis = seconds.checked_mul(1_000).ok_or(ParseError(DURATION_LONG)).map_err(wrong)?;
                Duration::bounded(millis).map_err(wrong)
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Duration, E> {
                Err(wrong(ParseError("a duration that is not negative")))
            }

            fn visit_f64<E: Error>(self, seconds: f64) -> Result<Duration, E> {
                Duration::from_seconds(seconds).map_err(wrong)
            }
        }
        deserializer.deserialize_any(TextOrSeconds)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use super::{Duration, Time};
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    use utoipa::openapi::{OneOfBuilder, RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    impl PartialSchema for Time {
        fn schema() -> RefOr<Schema> {
            let text = ObjectBuilder::new().schema_type(Type::String).description(Some("RFC 3339, UTC, milliseconds"));
            text.examples(["2026-11-15T18:08:27.123Z"]).into()
        }
    }

    impl ToSchema for Time {}

    impl PartialSchema for Duration {
        fn schema() -> RefOr<Schema> {
            let text = ObjectBuilder::new().schema_type(Type::String).description(Some("units w d h m s ms: 1h15m5s"));
            let seconds = ObjectBuilder::new().schema_type(Type::Number).description(Some("seconds"));
            OneOfBuilder::new().item(text).item(seconds).into()
        }
    }

    impl ToSchema for Duration {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_with_milliseconds() {
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
        assert!("2026-11-15T18:08:27.123".parse::<Time>().is_err(), "without a zone it is no instant");
        assert!("2026-11-15 18:08:27Z".parse::<Time>().is_err());
    }

    #[test]
    fn durations_are_text_or_seconds() {
        let read = |json: &str| serde_json::from_str::<Duration>(json).map(|length| length.0).ok();
        assert_eq!(read("\"1h15m5s\""), Some(4_505_000));
        assert_eq!(read("\" 3w 2d \""), Some(23 * DAY));
        assert_eq!(read("90"), Some(90_000));
        assert_eq!(read("1.5"), Some(1_500));
        assert_eq!(read("0"), Some(0));
        for bad in
            ["-1", "\"-1s\"", "\"\"", "\"10\"", "\"1.5s\"", "true", "null", "[]", "1e300", "\"36501d\"", "4000000000"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
        for (text, shown) in [("0s", "0s"), ("24h", "24h"), ("1w", "7d"), ("36h", "1d12h"), ("90500ms", "1m30s500ms")] {
            assert_eq!(text.parse::<Duration>().unwrap().to_string(), shown);
        }
    }
}
