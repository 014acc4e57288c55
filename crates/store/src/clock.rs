//! What time it is. The only place that reads a clock.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use longshore_core::time::{Duration, Timestamp};

pub trait Clock: Debug + Send + Sync + 'static {
    /// Never goes back.
    fn now(&self) -> Timestamp;

    /// Goes on from this instant, unless the clock is past it already. A store calls it at its start with the last instant that it has seen.
    fn advance_to(&self, instant: Timestamp);
}

/// The time of this machine. It runs with the monotonic clock, so that a jump of the wall clock neither shortens nor lengthens a lease;
/// where the two have drifted apart it runs a little faster or slower until they agree again.
#[derive(Debug)]
pub struct SystemClock(Mutex<SlewState>);

/// Of each second, at most this part is used to catch up with the wall clock.
const SLEW_DIVISOR: i64 = 20;

#[derive(Debug)]
struct SlewState {
    at: Instant,
    /// What was told at that instant, in microseconds: finer than anybody is told, so that many small steps add up.
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
        Self(Mutex::new(SlewState { at: Instant::now(), reported_us: wall() }))
    }
}

/// Microseconds since the Unix epoch by the wall clock.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn wall() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        let mut steady = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = Instant::now();
        let passed = i64::try_from(at.duration_since(steady.at).as_micros()).unwrap_or(i64::MAX);
        *steady = SlewState { at, reported_us: slew(steady.reported_us, passed, wall()) };
        Timestamp::from_millis(steady.reported_us / 1_000)
    }

    /// A wall clock that is behind this instant is caught up with slowly, as after any jump.
    fn advance_to(&self, instant: Timestamp) {
        let mut steady = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        steady.reported_us = steady.reported_us.max(instant.as_millis().saturating_mul(1_000));
    }
}

/// Where a clock that told `told` stands when `passed` has gone by and the wall says `wall`.
fn slew(told: i64, passed: i64, wall: i64) -> i64 {
    let expected = told.saturating_add(passed);
    let most = passed / SLEW_DIVISOR;
    let drift = wall.saturating_sub(expected).clamp(-most, most);
    expected.saturating_add(drift).max(told)
}

/// Time since some instant of this process: for measuring how long something took, and for nothing else.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn monotonic() -> std::time::Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    now.saturating_duration_since(*START.get_or_init(|| now))
}

/// A clock that stands still until it is moved: the time of tests and of `--virtual-clock`.
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

    /// Moves on to an instant; never back.
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

    /// P16: a jump of the wall clock does not reach a lease of half a minute.
    #[test]
    fn a_jump_of_the_wall_clock_is_caught_up_slowly() {
        let (second, hour) = (1_000_000, 3_600_000_000);
        let start = 1_000 * second;
        for jump in [hour, -hour, 24 * hour] {
            let (mut told, mut wall) = (start, start + jump);
            for _ in 0..30_000 {
                wall += second / 1_000;
                let next = slew(told, second / 1_000, wall);
                assert!(next >= told, "never back");
                told = next;
            }
            let felt = told - start;
            assert!((28 * second..=32 * second).contains(&felt), "30 s felt like {felt} us after a jump of {jump}");
        }
        let (mut told, mut wall) = (start, start + 60 * second);
        for _ in 0..2_000 {
            wall += second;
            told = slew(told, second, wall);
        }
        assert_eq!(told, wall, "in the end they agree");
    }

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = SystemClock::new();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn the_system_clock_goes_on_from_an_instant_ahead_of_the_wall() {
        let clock = SystemClock::new();
        let before = clock.now();
        clock.advance_to(Timestamp::from_millis(1));
        assert!(clock.now() >= before, "an instant of the past changes nothing");
        let ahead = before + Duration::from_hours(1);
        clock.advance_to(ahead);
        let now = clock.now();
        assert!(now >= ahead && now < ahead + Duration::from_hours(1));
    }

    #[test]
    fn the_stopwatch_never_goes_back() {
        let first = monotonic();
        assert!(monotonic() >= first);
    }

    #[test]
    fn a_virtual_clock_stands_still_until_it_is_moved() {
        let clock = VirtualClock::new(Timestamp::from_millis(5));
        assert_eq!(clock.now(), clock.now());
        assert_eq!(clock.advance(Duration::from_millis(7)).as_millis(), 12);
        clock.advance_to(Timestamp::from_millis(3));
        assert_eq!(clock.now().as_millis(), 12);
    }
}
