//! How many requests and jobs a token may send.
//!
//! The limit is a bucket that holds `burst` units and gets `rate` of them per second. A request
//! takes one unit, and a submission one per job. A request is admitted while one unit is left. A
//! batch may take more units than are left: the bucket then owes them, and later requests wait. No
//! batch is therefore too large for its limit, and the mean rate stays.

use std::time::Duration;

use crate::limits::TOKEN_RATE_MAX;
use crate::refusal::Invalid;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Units per second, and units that may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    rate: u32,
    burst: u32,
}

impl RateLimit {
    /// Checks the two fields of a token. Without `burst` it is the rate: one second's worth.
    pub fn new(rate: Option<u32>, burst: Option<u32>) -> Result<Option<Self>, Invalid> {
        let in_range = |field: &'static str, value: u32| match value {
            1..=TOKEN_RATE_MAX => Ok(value),
            _ => Err(Invalid::new(field, format!("must be 1-{TOKEN_RATE_MAX}"))),
        };
        let Some(rate) = rate else {
            return match burst {
                Some(_) => Err(Invalid::new("burst", "needs \"rate\"")),
                None => Ok(None),
            };
        };
        let rate = in_range("rate", rate)?;
        Ok(Some(Self { rate, burst: in_range("burst", burst.unwrap_or(rate))? }))
    }

    pub fn rate(self) -> u32 {
        self.rate
    }

    pub fn burst(self) -> u32 {
        self.burst
    }

    fn interval(self) -> u64 {
        NANOS_PER_SECOND / u64::from(self.rate.max(1))
    }
}

/// The units of a token that are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateBucket {
    /// When the bucket is full again, in nanoseconds of a monotonic clock.
    full_at: u64,
}

impl RateBucket {
    /// Takes one unit. Without one, returns the time until there is.
    pub fn take(&mut self, limit: RateLimit, now: Duration) -> Result<(), Duration> {
        let now = nanos(now);
        let spare = limit.interval().saturating_mul(u64::from(limit.burst).saturating_sub(1));
        let wait = self.full_at.saturating_sub(now).saturating_sub(spare);
        if wait > 0 {
            return Err(Duration::from_nanos(wait));
        }
        self.charge(limit, 1, Duration::from_nanos(now));
        Ok(())
    }

    /// Takes units that may not be there.
    pub fn charge(&mut self, limit: RateLimit, units: usize, now: Duration) {
        let cost = limit.interval().saturating_mul(units as u64);
        self.full_at = self.full_at.max(nanos(now)).saturating_add(cost);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(rate: u32, burst: u32) -> RateLimit {
        RateLimit::new(Some(rate), Some(burst)).unwrap().unwrap()
    }

    #[test]
    fn fields_are_checked() {
        assert_eq!(RateLimit::new(None, None).unwrap(), None);
        assert_eq!(RateLimit::new(Some(7), None).unwrap().unwrap(), limit(7, 7));
        let field = |rate, burst| RateLimit::new(rate, burst).unwrap_err().field.into_owned();
        assert_eq!(field(None, Some(5)), "burst");
        assert_eq!(
            (field(Some(0), None), field(Some(TOKEN_RATE_MAX + 1), None)),
            ("rate".to_owned(), "rate".to_owned())
        );
        assert_eq!((field(Some(1), Some(0)), field(Some(1), Some(u32::MAX))), ("burst".to_owned(), "burst".to_owned()));
        assert!(RateLimit::new(Some(TOKEN_RATE_MAX), Some(TOKEN_RATE_MAX)).is_ok());
    }

    #[test]
    fn a_burst_is_admitted_and_then_the_rate() {
        let (limit, mut bucket) = (limit(10, 3), RateBucket::default());
        let at = Duration::from_millis;
        for _ in 0..3 {
            bucket.take(limit, at(1_000)).unwrap();
        }
        assert_eq!(bucket.take(limit, at(1_000)), Err(at(100)));
        assert_eq!(bucket.take(limit, at(1_099)), Err(at(1)));
        bucket.take(limit, at(1_100)).unwrap();
        assert_eq!(bucket.take(limit, at(1_100)), Err(at(100)));
        for _ in 0..3 {
            bucket.take(limit, at(60_000)).unwrap();
        }
        assert!(bucket.take(limit, at(60_000)).is_err(), "a bucket never holds more than its burst");
    }

    /// The mean of any long time is the rate, whatever the batches.
    #[test]
    fn a_batch_is_paid_for_afterwards() {
        let (limit, mut bucket) = (limit(100, 100), RateBucket::default());
        let mut jobs = 0_u64;
        for millisecond in 0..100_000 {
            let now = Duration::from_millis(millisecond);
            if bucket.take(limit, now).is_ok() {
                bucket.charge(limit, 999, now);
                jobs += 1_000;
            }
        }
        assert!((9_000..=11_100).contains(&jobs), "{jobs} jobs in 100 s at 100 per second");
    }
}
