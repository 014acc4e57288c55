//! Due times of a schedule: a cron expression in a time zone, or a fixed interval.

use std::cmp::Ordering;

use croner::errors::CronError;
use croner::{CivilDateTime, CronDateTime, Resolution, Weekday};
use jiff::ToSpan;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::expression::Expression;
use crate::limits::check_duration;
use crate::refusal::Invalid;
use crate::time::{Duration, Timestamp};

/// Shortest interval of `every`.
pub const EVERY_MIN: Duration = Duration::from_secs(1);
/// A search for the next match ends after this many years. The longest time between two matches is
/// 40 years: a fifth Monday in February, over 2100.
const SEARCH_YEARS_MAX: i16 = 41;

/// When a schedule is due.
#[derive(Clone, Debug)]
pub enum DueTimes {
    /// Multiples of the interval after `anchor`.
    Every {
        interval: Duration,
        anchor: Timestamp,
    },
    Cron(Box<CronTimes>),
}

/// The times of a cron expression in a time zone.
#[derive(Clone, Debug)]
pub struct CronTimes {
    expression: Expression,
    zone: TimeZone,
}

/// Returns a time zone of the IANA database, which is part of the program.
pub fn find_time_zone(name: &str) -> Result<TimeZone, Invalid> {
    let unknown = || Invalid::new("timezone", "must be a name of the IANA time zone database, such as Europe/Berlin");
    let zone = TimeZone::get(name).map_err(|_| unknown())?;
    // A time zone that exists in the database and means: none.
    if zone.is_unknown() { Err(unknown()) } else { Ok(zone) }
}

/// Returns the names of all time zones that a schedule may have.
pub fn time_zone_names() -> Vec<String> {
    let names = jiff::tz::db().available().map(|name| name.as_str().to_owned());
    names.filter(|name| find_time_zone(name).is_ok()).collect()
}

/// Returns an instant as local time with its offset, for people.
pub fn format_local(zone: &TimeZone, at: Timestamp) -> String {
    let Ok(at) = jiff::Timestamp::from_millisecond(at.as_millis()) else { return String::new() };
    at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string()
}

impl DueTimes {
    /// Checks an interval.
    pub fn every(interval: Duration, anchor: Timestamp) -> Result<Self, Invalid> {
        if interval < EVERY_MIN {
            return Err(Invalid::new("every", format!("must be at least {EVERY_MIN}")));
        }
        check_duration("every", interval)?;
        Ok(Self::Every { interval, anchor })
    }

    /// Parses a cron expression. `now` is where the search for a first match starts.
    pub fn cron(expression: &str, zone: TimeZone, now: Timestamp) -> Result<Self, Invalid> {
        let times = Self::Cron(Box::new(CronTimes { expression: Expression::parse(expression)?, zone }));
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
    fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        let instant = jiff::Timestamp::from_millisecond(instant.as_millis()).ok()?;
        let is_elapsed = self.expression.is_elapsed;
        let found = if is_elapsed { self.next_elapsed(instant) } else { self.next_local(instant) };
        found.map(|found| Timestamp::from_millis(found.as_millisecond()))
    }

    /// Returns the first match after a local time; with `inclusive`, also that time itself.
    fn next_match(&self, local: DateTime, inclusive: bool) -> Option<DateTime> {
        let start = BoundedDateTime { local, year_max: local.year().checked_add(SEARCH_YEARS_MAX)? };
        let found = self.expression.cron.find_next_occurrence(&start, inclusive).ok()?;
        Some(found.local)
    }

    /// Follows local time. A time that a clock change skips is the first instant after the gap; a
    /// time that occurs twice is the first of both.
    fn next_local(&self, instant: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut local = self.zone.to_datetime(instant);
        loop {
            local = self.next_match(local, false)?;
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
                // With the offset of after the gap, a time inside of it is before the gap.
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
            let local = self.next_match(offset.to_datetime(from), inclusive)?;
            let found = offset.to_timestamp(local).ok()?;
            // The offset is valid until the next change of the clock.
            let transition = self.zone.following(from).next().map(|transition| transition.timestamp());
            let Some(transition) = transition.filter(|transition| *transition <= found) else { return Some(found) };
            // A change may repeat local times before `from` only if it is near. Otherwise no local
            // time matches before `local`, and the search continues shortly before it.
            let (days, near) = (48.hours(), |at: jiff::Timestamp| transition <= at);
            let shortly_before = found.checked_sub(days).ok()?;
            let skips = !near(from.checked_add(days).ok()?) && near(shortly_before);
            (from, inclusive) = (if skips { shortly_before } else { transition }, true);
        }
    }
}

/// A local time whose search ends after some years. Without a bound, a date that does not exist is
/// searched for millennia.
#[derive(Clone, Debug)]
struct BoundedDateTime {
    local: DateTime,
    year_max: i16,
}

impl CronDateTime for BoundedDateTime {
    fn to_civil(&self) -> CivilDateTime {
        self.local.to_civil()
    }

    fn civil_weekday(&self) -> Weekday {
        self.local.civil_weekday()
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        if civil.year() > i32::from(self.year_max) {
            return Err(CronError::TimeSearchLimitExceeded);
        }
        let at = |local: DateTime| Self { local, year_max: self.year_max };
        Ok(match self.local.resolve_civil(civil)? {
            Resolution::Single(local) => Resolution::Single(at(local)),
            Resolution::Ambiguous(earlier, later) => Resolution::Ambiguous(at(earlier), at(later)),
            Resolution::Gap => Resolution::Gap,
        })
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        Some(Self { local: self.local.checked_add_seconds(seconds)?, year_max: self.year_max })
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.local.cmp(&other.local)
    }
}

#[cfg(test)]
mod tests;
