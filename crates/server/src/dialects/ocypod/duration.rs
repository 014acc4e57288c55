//! Durations as Ocypod writes them: `1h 15m 5s`, `2days`, `500ms`.
//!
//! Longshore has whole milliseconds. Fractions are rounded up: `0s` means "off", so that a short
//! duration must not become zero.

use std::fmt;

use longshore_core::Duration;
use longshore_core::limits::DURATION_MAX;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OcypodDuration(pub Duration);

const MICRO: u128 = 1_000;
const MILLI: u128 = 1_000 * MICRO;
const SECOND: u128 = 1_000 * MILLI;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;
const DAY: u128 = 24 * HOUR;
/// 30.44 days.
const MONTH: u128 = 2_630_016 * SECOND;
/// 365.25 days.
const YEAR: u128 = 31_557_600 * SECOND;

fn nanos_of(unit: &str) -> Option<u128> {
    Some(match unit {
        "nanos" | "nsec" | "ns" => 1,
        "usec" | "us" => MICRO,
        "millis" | "msec" | "ms" => MILLI,
        "seconds" | "second" | "secs" | "sec" | "s" => SECOND,
        "minutes" | "minute" | "min" | "mins" | "m" => MINUTE,
        "hours" | "hour" | "hrs" | "hr" | "h" => HOUR,
        "days" | "day" | "d" => DAY,
        "weeks" | "week" | "w" => 7 * DAY,
        "months" | "month" | "M" => MONTH,
        "years" | "year" | "y" => YEAR,
        _ => return None,
    })
}

impl OcypodDuration {
    /// Parses one or more integers with units. Spaces are allowed anywhere but inside a unit.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.chars().peekable();
        let mut total: u128 = 0;
        let mut parts = 0;
        loop {
            while rest.next_if(|c| c.is_whitespace()).is_some() {}
            match rest.peek() {
                None if parts == 0 => return Err("value was empty".to_owned()),
                None => break,
                Some(c) if c.is_ascii_digit() => {}
                Some(_) => return Err("expected a number".to_owned()),
            }
            let mut number: u64 = 0;
            while let Some(c) = rest.next_if(|c| c.is_ascii_digit() || c.is_whitespace()) {
                let Some(digit) = c.to_digit(10) else { continue };
                let next = number.checked_mul(10).and_then(|number| number.checked_add(u64::from(digit)));
                number = next.ok_or("number is too large")?;
            }
            let mut unit = String::new();
            while let Some(c) = rest.next_if(char::is_ascii_alphabetic) {
                unit.push(c);
            }
            if rest.peek().is_some_and(|c| !c.is_ascii_digit() && !c.is_whitespace()) {
                return Err("invalid character".to_owned());
            }
            if unit.is_empty() {
                return Err(format!("time unit needed, for example {number}sec or {number}ms"));
            }
            let nanos = nanos_of(&unit).ok_or_else(|| {
                let unit: String = unit.chars().take(20).collect();
                format!("unknown time unit {unit:?}, supported units: ns, us, ms, sec, min, hours, days, weeks, months, years")
            })?;
            total = total.saturating_add(u128::from(number).saturating_mul(nanos));
            parts += 1;
        }
        let millis = u64::try_from(total.div_ceil(MILLI)).unwrap_or(u64::MAX);
        match Duration::from_millis(millis) {
            duration if duration <= DURATION_MAX => Ok(Self(duration)),
            _ => Err(format!("a duration may be at most {}", Self(DURATION_MAX).days())),
        }
    }

    fn days(self) -> String {
        format!("{}days", self.0.as_millis() / 86_400_000)
    }

    /// "Off" is `0s`.
    pub(super) fn or_zero(duration: Option<Duration>) -> Self {
        Self(duration.unwrap_or_default())
    }
}

impl fmt::Display for OcypodDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let seconds = millis / 1_000;
        let (years, in_year) = (seconds / 31_557_600, seconds % 31_557_600);
        let (months, in_month) = (in_year / 2_630_016, in_year % 2_630_016);
        let (days, in_day) = (in_month / 86_400, in_month % 86_400);
        let plural = |count: u64| if count > 1 { "s" } else { "" };
        let parts = [
            (years, "year", plural(years)),
            (months, "month", plural(months)),
            (days, "day", plural(days)),
            (in_day / 3_600, "h", ""),
            (in_day / 60 % 60, "m", ""),
            (in_day % 60, "s", ""),
            (millis % 1_000, "ms", ""),
        ];
        let mut space = "";
        for (count, unit, plural) in parts.into_iter().filter(|(count, ..)| *count > 0) {
            write!(f, "{space}{count}{unit}{plural}")?;
            space = " ";
        }
        if millis == 0 { f.write_str("0s") } else { Ok(()) }
    }
}

impl Serialize for OcypodDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OcypodDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

/// Accepts only strings without escapes, as Ocypod does.
struct DurationVisitor;

impl<'de> Visitor<'de> for DurationVisitor {
    type Value = OcypodDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"1h 15m\", without escapes")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<OcypodDuration, E> {
        OcypodDuration::parse(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> Option<u64> {
        OcypodDuration::parse(text).ok().map(|duration| duration.0.as_millis())
    }

    /// Proves O-40, O-41, O-43, O-46.
    #[test]
    fn durations_parse_as_in_ocypod() {
        for (text, expected) in [
            ("0s", 0),
            ("30s", 30_000),
            ("1h15m5s", 4_505_000),
            ("1h 15m 5s", 4_505_000),
            (" 1 h\t15m ", 4_500_000),
            ("1 0s", 10_000),
            ("3w2d", 23 * 86_400_000),
            ("1w2d7h", 9 * 86_400_000 + 7 * 3_600_000),
            ("1500ms", 1_500),
            ("2minutes 1second", 121_000),
            ("1M", 2_630_016_000),
            ("1m", 60_000),
            ("1y", 31_557_600_000),
            ("1ns", 1),
            ("1500us", 2),
            ("1000000ns", 1),
            ("0ns", 0),
        ] {
            assert_eq!(millis(text), Some(expected), "{text:?}");
        }
        for invalid in [
            "", " ", "0", "10", "1s 5", "s", "1.5s", "-1s", "+1s", "1S", "1H", "1wk", "1s,2s", "1 s s", "1\u{0}s",
            "１s",
        ] {
            assert_eq!(millis(invalid), None, "{invalid:?} must be rejected");
        }
        assert_eq!(millis("99999999999999999999s"), None);
        assert_eq!(millis("18446744073709551615y"), None);
        assert_eq!(millis("36500d"), Some(DURATION_MAX.as_millis()));
        assert_eq!(millis("36501d"), None);
        let every_unit = "1ns 1nsec 1nanos 1us 1usec 1ms 1msec 1millis 1s 1sec 1secs 1second 1seconds 1m 1min 1mins 1minute 1minutes \
                          1h 1hr 1hrs 1hour 1hours 1d 1day 1days 1w 1week 1weeks 1M 1month 1months 1y 1year 1years";
        assert!(millis(every_unit).is_some());
    }

    /// Proves O-40.
    #[test]
    fn durations_are_written_as_in_ocypod() {
        for (text, expected) in [
            ("0s", "0s"),
            ("90s", "1m 30s"),
            ("1h15m5s", "1h 15m 5s"),
            ("24h", "1day"),
            ("3w2d", "23days"),
            ("1w2d7h", "9days 7h"),
            ("500ms", "500ms"),
            ("1500ms", "1s 500ms"),
            ("1w", "7days"),
            ("1M", "1month"),
            ("1y", "1year"),
            ("2y2M2d", "2years 2months 2days"),
            ("14days 10h 17m 36s", "14days 10h 17m 36s"),
        ] {
            let duration = OcypodDuration::parse(text).unwrap();
            assert_eq!(duration.to_string(), expected);
            assert_eq!(OcypodDuration::parse(&duration.to_string()).unwrap(), duration);
        }
    }
}
