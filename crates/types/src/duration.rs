//! Lengths of time, in whole milliseconds.

use std::fmt;
use std::str::FromStr;

/// A length of time in milliseconds.
///
/// In a setting `0s` means "off"; see [`Duration::non_zero`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub u64);

const DAY: u64 = 86_400_000;
const UNITS: [(&str, u64); 6] = [("ms", 1), ("w", 7 * DAY), ("d", DAY), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

const DURATION_FORMAT: &str = "a duration such as \"1h15m5s\" (units w, d, h, m, s, ms) or a number of seconds";
const TOO_LONG: ParseError = ParseError("a duration of at most 36500d");

/// A text that cannot be parsed: what was expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError(pub &'static str);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ParseError {}

impl Duration {
    pub const ZERO: Self = Self(0);
    /// The longest duration that is accepted: about a hundred years. The sum of a timestamp and a
    /// duration cannot overflow.
    pub const MAX: Self = Self::from_days(36_500);

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000)
    }

    pub const fn from_mins(mins: u64) -> Self {
        Self::from_secs(mins * 60)
    }

    pub const fn from_hours(hours: u64) -> Self {
        Self::from_mins(hours * 60)
    }

    pub const fn from_days(days: u64) -> Self {
        Self::from_hours(days * 24)
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    pub const fn as_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }

    /// Returns `None` for zero, which means "off" in a setting.
    pub fn non_zero(self) -> Option<Self> {
        (self > Self::ZERO).then_some(self)
    }

    fn within_max(self) -> Result<Self, ParseError> {
        if self <= Self::MAX { Ok(self) } else { Err(TOO_LONG) }
    }
}

impl FromStr for Duration {
    type Err = ParseError;

    /// Parses concatenated units `w d h m s ms`; spaces are allowed: `1h15m5s`, `3w 2d`, `500ms`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let malformed = || ParseError(DURATION_FORMAT);
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
            let number: u64 = number.parse().map_err(|_| TOO_LONG)?;
            let tail = tail.trim_start();
            let (unit, millis) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit)).ok_or_else(malformed)?;
            total = number.checked_mul(*millis).and_then(|part| total.checked_add(part)).ok_or(TOO_LONG)?;
            rest = tail.strip_prefix(unit).unwrap_or_default().trim_start();
        }
        Self(total).within_max()
    }
}

impl fmt::Display for Duration {
    /// Prints the format that is parsed, without weeks. Exactly one day is `24h`.
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

#[cfg(feature = "serde")]
mod json {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{DURATION_FORMAT, Duration, ParseError, TOO_LONG};

    impl Serialize for Duration {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Duration {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(TextOrSeconds)
        }
    }

    struct TextOrSeconds;

    fn expected<E: Error>(error: ParseError) -> E {
        E::custom(format_args!("expected {error}"))
    }

    impl Visitor<'_> for TextOrSeconds {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(DURATION_FORMAT)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            text.parse().map_err(expected)
        }

        fn visit_u64<E: Error>(self, seconds: u64) -> Result<Duration, E> {
            let millis = seconds.checked_mul(1_000).ok_or(TOO_LONG).map_err(expected)?;
            Duration(millis).within_max().map_err(expected)
        }

        fn visit_i64<E: Error>(self, _: i64) -> Result<Duration, E> {
            Err(expected(ParseError("a duration that is not negative")))
        }

        fn visit_f64<E: Error>(self, seconds: f64) -> Result<Duration, E> {
            from_seconds(seconds).map_err(expected)
        }
    }

    /// Rounds up to whole milliseconds, so that no positive length becomes 0, which means "off".
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked before")]
    fn from_seconds(seconds: f64) -> Result<Duration, ParseError> {
        if !seconds.is_finite() || seconds < 0.0 {
            return Err(ParseError(DURATION_FORMAT));
        }
        let exact = seconds * 1_000.0;
        // 1.001 seconds are 1000.9999999999999 milliseconds as a binary fraction.
        let is_whole = (exact - exact.round()).abs() <= exact * 4.0 * f64::EPSILON;
        let millis = if is_whole { exact.round() } else { exact.ceil() };
        if millis > 1e16 { Err(TOO_LONG) } else { Duration(millis as u64).within_max() }
    }
}

#[cfg(feature = "schema")]
mod schema {
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    use utoipa::openapi::{OneOfBuilder, RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    use super::Duration;

    impl PartialSchema for Duration {
        fn schema() -> RefOr<Schema> {
            let text = ObjectBuilder::new().schema_type(Type::String).description(Some("units w d h m s ms: 1h15m5s"));
            let seconds = ObjectBuilder::new().schema_type(Type::Number).description(Some("seconds"));
            let description = "Length of time, at most 36500d. Responses contain the text.";
            OneOfBuilder::new().item(text).item(seconds).description(Some(description)).into()
        }
    }

    impl ToSchema for Duration {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> Option<u64> {
        text.parse::<Duration>().ok().map(Duration::as_millis)
    }

    /// Proves O-40.
    #[test]
    fn parses_human_durations() {
        assert_eq!(millis("30s"), Some(30_000));
        assert_eq!(millis("1h15m5s"), Some(4_505_000));
        assert_eq!(millis("3w2d"), Some(23 * DAY));
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis(" 1h 15 m  5s "), Some(4_505_000));
        assert_eq!(millis("0s"), Some(0));
        assert_eq!(millis("1m500ms"), Some(60_500));
        for bad in ["", " ", "10", "s", "1.5s", "-1s", "1S", "1 year", "99999999999999999999s", "36501d", "1s,2s"] {
            assert_eq!(millis(bad), None, "{bad:?} must be refused");
        }
        assert_eq!(millis("36500d"), Some(Duration::MAX.as_millis()));
    }

    #[test]
    fn prints_what_it_parses() {
        for (text, printed) in [
            ("0s", "0s"),
            ("24h", "24h"),
            ("7d", "7d"),
            ("36h", "1d12h"),
            ("3600s", "1h"),
            ("90500ms", "1m30s500ms"),
            ("1w", "7d"),
        ] {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration.to_string(), printed);
            assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration);
        }
    }

    #[test]
    fn zero_is_off() {
        assert_eq!(Duration::ZERO.non_zero(), None);
        assert_eq!(Duration::from_secs(1).non_zero(), Some(Duration::from_secs(1)));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn json_is_text_or_seconds() {
        let read = |json: &str| serde_json::from_str::<Duration>(json).map(Duration::as_millis).ok();
        assert_eq!(read("\"1h15m5s\""), Some(4_505_000));
        assert_eq!(read("\" 3w 2d \""), Some(23 * DAY));
        assert_eq!(read("90"), Some(90_000));
        assert_eq!(read("1.5"), Some(1_500));
        assert_eq!(read("0"), Some(0));
        for (seconds, whole) in
            [("0.1", 100), ("1.001", 1_001), ("1.0001", 1_001), ("0.0004", 1), ("86400.007", 86_400_007)]
        {
            assert_eq!(read(seconds), Some(whole), "{seconds}: never shorter than given, never off");
        }
        for bad in
            ["-1", "\"-1s\"", "\"\"", "\"10\"", "\"1.5s\"", "true", "null", "[]", "1e300", "\"36501d\"", "4000000000"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
