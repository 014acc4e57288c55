//! Due times of a schedule: a cron expression in a time zone, or a fixed interval.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::refusal::Invalid;
use crate::time::{Duration, Timestamp};

/// Shortest interval of `every`.
pub const EVERY_MIN: Duration = Duration::from_secs(1);
/// Longest cron expression.
pub const CRON_CHARS_MAX: usize = 256;

/// When a schedule is due.
#[derive(Clone, Debug)]
pub enum DueTimes {
    /// Multiples of the interval after `anchor`.
    Every { interval: Duration, anchor: Timestamp },
    Cron(CronTimes),
}

/// The times of a cron expression in a time zone.
#[derive(Clone, Debug)]
pub struct CronTimes {
    cron: Cron,
    zone: TimeZone,
    /// The hour field begins with `*`: the expression follows elapsed time over clock changes.
    is_elapsed: bool,
}

impl DueTimes {
    /// Checks an interval.
    pub fn every(interval: Duration, anchor: Timestamp) -> Result<Self, Invalid> {
        if interval < EVERY_MIN {
            return Err(Invalid::new("every", format!("must be at least {EVERY_MIN}")));
        }
        Ok(Self::Every { interval, anchor })
    }

    /// Parses a cron expression. `now` is where the search for a first match starts.
    pub fn cron(expression: &str, zone: TimeZone, now: Timestamp) -> Result<Self, Invalid> {
        let times = Self::Cron(CronTimes::parse(expression, zone)?);
        match times.next_after(now) {
            Some(_) => Ok(times),
            None => Err(Invalid::new("cron", "never matches: no such date exists")),
        }
    }

    /// Returns the first due time after an instant; `None` if there is none.
    pub fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every { interval, anchor } => {
                let step = i64::try_from(interval.as_millis()).ok()?.max(1);
                let elapsed = instant.as_millis().checked_sub(anchor.as_millis())?;
                let count = elapsed.div_euclid(step).max(0).checked_add(1)?;
                Some(Timestamp::from_millis(anchor.as_millis().checked_add(count.checked_mul(step)?)?))
            }
            Self::Cron(times) => times.next_after(instant),
        }
    }

    /// Returns the next due times, at most `count`.
    pub fn next(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next_after(after), |last| self.next_after(*last)).take(count).collect()
    }
}

impl CronTimes {
    fn parse(expression: &str, zone: TimeZone) -> Result<Self, Invalid> {
        if expression.chars().count() > CRON_CHARS_MAX {
            return Err(Invalid::new("cron", format!("may have at most {CRON_CHARS_MAX} characters")));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|error| Invalid::new("cron", format!("is invalid: {error}")))?;
        let fields: Vec<&str> = expression.split_whitespace().collect();
        let hour = match fields.as_slice() {
            [_, _, hour, _, _, _] | [_, hour, _, _, _] => hour,
            [nickname] if nickname.eq_ignore_ascii_case("@hourly") => "*",
            [_] => "0",
            _ => return Err(Invalid::new("cron", "must have five fields, or six with seconds first")),
        };
        Ok(Self { cron, zone, is_elapsed: hour.starts_with(['*', '?']) })
    }

    fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        let instant = jiff::Timestamp::from_millisecond(instant.as_millis()).ok()?;
        let found = if self.is_elapsed { self.next_elapsed(instant) } else { self.next_local(instant) };
        found.map(|found| Timestamp::from_millis(found.as_millisecond()))
    }

    /// Follows local time. A time that a clock change skips is the first instant after the gap; a
    /// time that occurs twice is the first of both.
    fn next_local(&self, instant: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut local = self.zone.to_datetime(instant);
        loop {
            local = self.cron.find_next_occurrence(&local, false).ok()?;
            let found = self.first_instant(local)?;
            // Times of a repeated hour were due in its first pass; times of a gap coincide.
            if found > instant {
                return Some(found);
            }
        }
    }

    fn first_instant(&self, local: DateTime) -> Option<jiff::Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(local);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => ambiguous.unambiguous().ok(),
            AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
            AmbiguousOffset::Gap { after, .. } => {
                // Read with the offset of before, `local` is the gap's length too late; with the
                // offset of after, it is before the gap. The transition lies between.
                let before_gap = after.to_timestamp(local).ok()?;
                self.zone.following(before_gap).next().map(|transition| transition.timestamp())
            }
        }
    }

    /// Follows elapsed time: every instant whose local time matches, in both passes of a repeated
    /// hour.
    fn next_elapsed(&self, instant: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let (mut from, mut inclusive) = (instant, false);
        loop {
            let offset = self.zone.to_offset(from);
            let local = self.cron.find_next_occurrence(&offset.to_datetime(from), inclusive).ok()?;
            let found = offset.to_timestamp(local).ok()?;
            // The offset is valid until the next change of the clock.
            match self.zone.following(from).next() {
                Some(transition) if transition.timestamp() <= found => {
                    (from, inclusive) = (transition.timestamp(), true);
                }
                Some(_) | None => return Some(found),
            }
        }
    }
}

#[cfg(test)]
mod tests;
