//! Timestamps on the wire; durations are those of [`longshore_types`].

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use longshore_types::{Duration, ParseError};

/// Milliseconds since the Unix epoch; on the wire RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// The last millisecond that the calendar library accepts, in the year 9999.
    const LAST: i64 = 253_402_207_200_999;

    /// Formats a time from 1970 on. Returns `None` for a time out of this range.
    ///
    /// The calendar library takes several times as long. A claim of 1,000 jobs has 3,000 times.
    fn format(self) -> Option<[u8; 24]> {
        let millis = u64::try_from(self.0).ok().filter(|_| self.0 <= Self::LAST)?;
        let (day, time) = (millis / 86_400_000, millis % 86_400_000);
        // The year begins in March here, so the leap day is its last day. An era has 400 years.
        let shifted = day + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let (hour, minute, second, milli) = (time / 3_600_000, time / 60_000 % 60, time / 1_000 % 60, time % 1_000);
        let digit = |value: u64, unit: u64| {
            let [digit, ..] = (value / unit % 10).to_le_bytes();
            b'0' + digit
        };
        let (tens, ones) = (|value| digit(value, 10), |value| digit(value, 1));
        #[rustfmt::skip]
        let text = [
            digit(year, 1_000), digit(year, 100), tens(year), ones(year), b'-', tens(month), ones(month), b'-',
            tens(day), ones(day), b'T', tens(hour), ones(hour), b':', tens(minute), ones(minute), b':',
            tens(second), ones(second), b'.', digit(milli, 100), tens(milli), ones(milli), b'Z',
        ];
        Some(text)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.format() {
            return f.write_str(str::from_utf8(&text).unwrap_or_default());
        }
        // A value outside the range of the calendar is shown as the nearest end of the range.
        let limit = if self.0 > 0 { jiff::Timestamp::MAX } else { jiff::Timestamp::MIN };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(self.0).unwrap_or(limit))
    }
}

const TIME_FORMAT: &str = "a time such as \"2026-11-15T18:08:27.123Z\"";

/// Whether a time is between two milliseconds.
fn has_fraction(at: jiff::Timestamp) -> bool {
    at.as_nanosecond().rem_euclid(1_000_000) != 0
}

impl FromStr for Time {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // RFC 3339 only: the library accepts more formats.
        let byte = |index: usize| text.as_bytes().get(index).map(u8::to_ascii_uppercase);
        let has_separators =
            (byte(4), byte(10), byte(13), byte(16)) == (Some(b'-'), Some(b'T'), Some(b':'), Some(b':'));
        let is_rfc3339 = has_separators && text.len() <= 40 && !text.contains('[');
        let parsed = is_rfc3339.then(|| text.parse::<jiff::Timestamp>().ok()).flatten();
        // Rounded up: a job must not start before its time, and filters stay exact.
        let millis = |at: jiff::Timestamp| at.as_nanosecond().div_euclid(1_000_000) + i128::from(has_fraction(at));
        parsed.and_then(|at| i64::try_from(millis(at)).ok()).map(Self).ok_or(ParseError(TIME_FORMAT))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.format() {
            Some(text) => serializer.serialize_str(str::from_utf8(&text).unwrap_or_default()),
            None => serializer.collect_str(self),
        }
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
        assert_eq!("2026-11-15T18:08:27.1220001Z".parse(), Ok(time), "never before the time that was given");
        assert_eq!(Time(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Time(i64::MAX).to_string(), "9999-12-30T22:00:00.999Z");
        assert_eq!(serde_json::to_string(&time).unwrap(), format!("\"{text}\""));
        assert_eq!(serde_json::to_string(&Time(-1)).unwrap(), "\"1969-12-31T23:59:59.999Z\"");
        for bad in ["", "2026-11-15", "2026-11-15T18:08", "2026-13-15T18:08:27Z", "1794766107", "20261115T180827Z"] {
            assert!(bad.parse::<Time>().is_err(), "{bad:?}");
        }
        assert!("2026-11-15T18:08:27.123".parse::<Time>().is_err(), "a timestamp needs a time zone");
        assert!("2026-11-15 18:08:27Z".parse::<Time>().is_err());
    }

    #[test]
    fn own_format_is_that_of_the_calendar_library() {
        let days = (0..=2_932_895).step_by(13).chain([59, 60, 11_016, 11_017, 47_540, 47_541]);
        for (day, offset) in days.zip((0..86_400_000).step_by(7_919).cycle()) {
            let millis = day * 86_400_000 + offset;
            let expected = format!("{:.3}", jiff::Timestamp::from_millisecond(millis).unwrap());
            assert_eq!(Time(millis).to_string(), expected);
        }
        assert_eq!(Time(Time::LAST).to_string(), "9999-12-30T22:00:00.999Z");
        assert_eq!((Time(Time::LAST + 1).format(), Time(-1).format()), (None, None));
    }
}
