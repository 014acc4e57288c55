//! Clocks. No other module of the program reads the time.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use longshore_core::time::{Duration, Timestamp};
use parking_lot::Mutex;

pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the current time. It never decreases.
    fn now(&self) -> Timestamp;

    /// Continues from this instant, unless the clock has passed it. A store calls this on open with
    /// the latest time it has recorded.
    fn advance_to(&self, instant: Timestamp);
}

/// The time of this machine.
///
/// It follows the monotonic clock, so a jump of the wall clock does not change the length of a
/// lease. After a jump it slews: it runs slightly faster or slower until it agrees with the wall
/// clock.
#[derive(Debug)]
pub struct SystemClock(Mutex<SlewState>);

/// The clock corrects at most this fraction of the elapsed time.
const SLEW_DIVISOR: i64 = 20;

#[derive(Debug)]
struct SlewState {
    at: Instant,
    /// The time reported at that instant. Microseconds, because the corrections of short steps
    /// would round to zero in milliseconds.
    reported_us: i64,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn new() -> Self {
        Self(Mutex::new(SlewState { at: Instant::now(), reported_us: wall_us() }))
    }
}

/// Returns microseconds since the Unix epoch by the wall clock.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn wall_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        let mut state = self.0.lock();
        let at = Instant::now();
        let passed_us = i64::try_from(at.duration_since(state.at).as_micros()).unwrap_or(i64::MAX);
        *state = SlewState { at, reported_us: slew(state.reported_us, passed_us, wall_us()) };
        Timestamp::from_millis(state.reported_us / 1_000)
    }

    /// If the wall clock is behind this instant, the difference is slewed away as after a jump.
    fn advance_to(&self, instant: Timestamp) {
        let mut state = self.0.lock();
        state.reported_us = state.reported_us.max(instant.as_millis().saturating_mul(1_000));
    }
}

/// Returns the time to report, `passed_us` after `reported_us` was reported, while the wall clock
/// shows `wall_us`.
fn slew(reported_us: i64, passed_us: i64, wall_us: i64) -> i64 {
    let expected = reported_us.saturating_add(passed_us);
    let correction_max = passed_us / SLEW_DIVISOR;
    let correction = wall_us.saturating_sub(expected).clamp(-correction_max, correction_max);
    expected.saturating_add(correction).max(reported_us)
}

/// Returns the time since the first call in this process. Differences of two values measure
/// durations.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn monotonic() -> std::time::Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    now.saturating_duration_since(*START.get_or_init(|| now))
}

/// A clock that changes only when it is advanced, for tests and `--virtual-clock`.
#[derive(Debug)]
pub struct VirtualClock(AtomicI64);

impl VirtualClock {
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.as_millis()))
    }

    pub fn advance(&self, by: Duration) -> Timestamp {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.0.fetch_add(by, Ordering::SeqCst).saturating_add(by))
    }

    /// Advances to an instant. An instant in the past has no effect.
    pub fn advance_to(&self, instant: Timestamp) {
        self.0.fetch_max(instant.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn advance_to(&self, instant: Timestamp) {
        Self::advance_to(self, instant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P16: a jump of the wall clock changes a lease of 30 s by at most 2 s.
    #[test]
    fn slew_spreads_a_jump_of_the_wall_clock() {
        let (second, hour) = (1_000_000, 3_600_000_000);
        let start = 1_000 * second;
        for jump in [hour, -hour, 24 * hour] {
            let (mut reported, mut wall) = (start, start + jump);
            for _ in 0..30_000 {
                wall += second / 1_000;
                let next = slew(reported, second / 1_000, wall);
                assert!(next >= reported, "the clock went back");
                reported = next;
            }
            let elapsed = reported - start;
            assert!((28 * second..=32 * second).contains(&elapsed), "30 s took {elapsed} us after a jump of {jump}");
        }
        let (mut reported, mut wall) = (start, start + 60 * second);
        for _ in 0..2_000 {
            wall += second;
            reported = slew(reported, second, wall);
        }
        assert_eq!(reported, wall, "the clocks converge");
    }

    #[test]
    fn system_clock_never_decreases() {
        let clock = SystemClock::new();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn system_clock_advances_past_the_wall_clock() {
        let clock = SystemClock::new();
        let before = clock.now();
        clock.advance_to(Timestamp::from_millis(1));
        assert!(clock.now() >= before, "a past instant has no effect");
        let future = before + Duration::from_hours(1);
        clock.advance_to(future);
        let now = clock.now();
        assert!(now >= future && now < future + Duration::from_hours(1));
    }

    #[test]
    fn monotonic_never_decreases() {
        let first = monotonic();
        assert!(monotonic() >= first);
    }

    #[test]
    fn virtual_clock_changes_only_when_advanced() {
        let clock = VirtualClock::new(Timestamp::from_millis(5));
        assert_eq!(clock.now(), clock.now());
        assert_eq!(clock.advance(Duration::from_millis(7)).as_millis(), 12);
        clock.advance_to(Timestamp::from_millis(3));
        assert_eq!(clock.now().as_millis(), 12);
    }
}
