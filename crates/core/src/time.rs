//! Instants and lengths of time, in whole milliseconds. Nothing here reads a clock.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;

use crate::limits::DURATION_MAX;
use crate::refusal::Invalid;

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const MAX: Self = Self(i64::MAX);

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// How long from `earlier` to `self`; nothing if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        let millis = self.0.saturating_sub(earlier.0).max(0);
        Duration::from_millis(millis.unsigned_abs())
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add_unsigned(length.as_millis()))
    }
}

/// A length of time. Where a setting says "off", it is `None`, not zero: see [`Duration::on`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    pub const ZERO: Self = Self(0);

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

    /// The wire's `0s` means "switched off".
    pub fn non_zero(self) -> Option<Self> {
        (self > Self::ZERO).then_some(self)
    }
}

const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("w", 7 * 86_400_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

impl FromStr for Duration {
    type Err = Invalid;

    /// Concatenated units `w d h m s ms`, spaces allowed: `1h15m5s`, `3w 2d`, `500ms`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let malformed =
            || Invalid::new("duration", "must be whole numbers with units w, d, h, m, s or ms, such as \"1h15m\"");
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(malformed());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = rest.split_at(digits);
            let number: u64 = number.parse().map_err(|_| malformed())?;
            let tail = tail.trim_start();
            let (unit, millis) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit)).ok_or_else(malformed)?;
            total = number.checked_mul(*millis).and_then(|part| total.checked_add(part)).ok_or_else(too_long)?;
            rest = tail.strip_prefix(unit).unwrap_or_default().trim_start();
        }
        Self(total).within_limit()
    }
}

fn too_long() -> Invalid {
    Invalid::new("duration", format!("must be at most {DURATION_MAX}"))
}

impl Duration {
    pub fn within_limit(self) -> Result<Self, Invalid> {
        if self <= DURATION_MAX { Ok(self) } else { Err(too_long()) }
    }
}

impl fmt::Display for Duration {
    /// The grammar that is read, without weeks; a day alone stays `24h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let day = 86_400_000;
        let mut rest = self.0;
        let days = if rest > day { rest / day } else { 0 };
        rest -= days * day;
        let parts = [
            (days, "d"),
            (rest / 3_600_000, "h"),
            (rest / 60_000 % 60, "m"),
            (rest / 1_000 % 60, "s"),
            (rest % 1_000, "ms"),
        ];
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{count}{unit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> Option<u64> {
        text.parse::<Duration>().ok().map(Duration::as_millis)
    }

    /// Proves O-40.
    #[test]
    fn reads_human_durations() {
        assert_eq!(millis("30s"), Some(30_000));
        assert_eq!(millis("1h15m5s"), Some(4_505_000));
        assert_eq!(millis("3w2d"), Some(23 * 86_400_000));
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis(" 1h 15 m  5s "), Some(4_505_000));
        assert_eq!(millis("0s"), Some(0));
        assert_eq!(millis("1m500ms"), Some(60_500));
        for bad in ["", " ", "10", "s", "1.5s", "-1s", "1S", "1 year", "99999999999999999999s", "36501d", "1s,2s"] {
            assert_eq!(millis(bad), None, "{bad:?} must be refused");
        }
        assert_eq!(millis("36500d"), Some(DURATION_MAX.as_millis()));
    }

    #[test]
    fn prints_what_it_reads() {
        for (text, printed) in [
            ("0s", "0s"),
            ("24h", "24h"),
            ("7d", "7d"),
            ("36h", "1d12h"),
            ("3600s", "1h"),
            ("90500ms", "1m30s500ms"),
            ("1w", "7d"),
        ] {
            let length: Duration = text.parse().unwrap();
            assert_eq!(length.to_string(), printed);
            assert_eq!(length.to_string().parse::<Duration>().unwrap(), length);
        }
    }

    #[test]
    fn off_is_none() {
        assert_eq!(Duration::ZERO.non_zero(), None);
        assert_eq!(Duration::from_secs(1).non_zero(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn instants_never_overflow() {
        assert_eq!(Timestamp::MAX + Duration::from_days(1), Timestamp::MAX);
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
    }
}
