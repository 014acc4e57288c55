//! The wait before a retry: a formula, then jitter, then the cap again.

use std::fmt;

use crate::rng::Rng;
use crate::time::Duration;

pub use longshore_types::JitterKind;

/// Backoff function of an application: `delay(n, base, cap)`, n = 1 before the first retry.
pub type DelayFunction = fn(u32, Duration, Option<Duration>) -> Duration;

/// The wait before a retry, without jitter.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    pub kind: BackoffKind,
    pub base: Duration,
    pub multiplier: f64,
    /// `None`: no limit.
    pub cap: Option<Duration>,
    /// For `List`: one entry per retry, the last repeats. Empty: no wait.
    pub delays: Vec<Duration>,
}

/// Formula of the wait. The wire has all kinds but `Custom`.
#[derive(Clone, Copy, PartialEq)]
pub enum BackoffKind {
    Constant,
    Linear,
    Exponential,
    List,
    /// Only for programs that embed the engine. It cannot be stored or sent.
    Custom(CustomBackoff),
}

/// A named backoff function. Equality compares the names.
#[derive(Clone, Copy, Debug)]
pub struct CustomBackoff {
    pub name: &'static str,
    pub delay: DelayFunction,
}

impl PartialEq for CustomBackoff {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl BackoffKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Linear => "linear",
            Self::Exponential => "exponential",
            Self::List => "list",
            Self::Custom(custom) => custom.name,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        longshore_types::BackoffKind::parse(text).map(Into::into)
    }

    /// Returns the kind as the wire names it; `None` for a function of an application.
    pub fn named(self) -> Option<longshore_types::BackoffKind> {
        match self {
            Self::Constant => Some(longshore_types::BackoffKind::Constant),
            Self::Linear => Some(longshore_types::BackoffKind::Linear),
            Self::Exponential => Some(longshore_types::BackoffKind::Exponential),
            Self::List => Some(longshore_types::BackoffKind::List),
            Self::Custom(_) => None,
        }
    }
}

impl From<longshore_types::BackoffKind> for BackoffKind {
    fn from(kind: longshore_types::BackoffKind) -> Self {
        match kind {
            longshore_types::BackoffKind::Constant => Self::Constant,
            longshore_types::BackoffKind::Linear => Self::Linear,
            longshore_types::BackoffKind::Exponential => Self::Exponential,
            longshore_types::BackoffKind::List => Self::List,
        }
    }
}

impl fmt::Debug for BackoffKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Randomness of the wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    pub kind: JitterKind,
    /// For `Symmetric`: 0.1 is plus or minus a tenth.
    pub factor: f64,
}

impl Backoff {
    /// Returns the wait before retry `n` (1 is the first), without jitter.
    pub fn delay(&self, n: u32) -> Duration {
        let n = n.max(1);
        let delay = match self.kind {
            BackoffKind::Constant => self.base,
            BackoffKind::Linear => Duration::from_millis(self.base.as_millis().saturating_mul(u64::from(n))),
            BackoffKind::Exponential => self.exponential(n),
            BackoffKind::List => {
                let index = usize::try_from(n - 1).unwrap_or(usize::MAX);
                self.delays.get(index).or(self.delays.last()).copied().unwrap_or(Duration::ZERO)
            }
            BackoffKind::Custom(custom) => (custom.delay)(n, self.base, self.cap),
        };
        self.capped(delay)
    }

    /// Returns the wait before retry `n`, with jitter.
    pub fn jittered(&self, n: u32, jitter: Jitter, rng: &mut dyn Rng) -> Duration {
        let delay = self.delay(n);
        match jitter.kind {
            JitterKind::None => delay,
            JitterKind::Full => Duration::from_millis(rng.uniform_inclusive(delay.as_millis())),
            JitterKind::Symmetric => {
                let deviation = jitter.factor * (2.0 * rng.unit() - 1.0);
                self.capped(scale(delay, 1.0 + deviation))
            }
        }
    }

    /// Limits a delay to the cap.
    pub fn capped(&self, delay: Duration) -> Duration {
        let delay = delay.min(crate::limits::DURATION_MAX);
        self.cap.map_or(delay, |cap| delay.min(cap))
    }

    fn exponential(&self, n: u32) -> Duration {
        // An infinite product saturates in `scale`.
        scale(self.base, self.multiplier.powi(i32::try_from(n - 1).unwrap_or(i32::MAX)))
    }
}

/// Multiplies, truncates to whole milliseconds and limits to [`DURATION_MAX`](crate::limits).
fn scale(duration: Duration, factor: f64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "durations are below 2^53 ms")]
    let product = duration.as_millis() as f64 * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and the limit is applied at once"
    )]
    let millis = product as u64;
    Duration::from_millis(millis).min(crate::limits::DURATION_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Settings;
    use crate::profile::Profile;
    use crate::rng::SeededRng;

    fn secs(delays: impl IntoIterator<Item = Duration>) -> Vec<u64> {
        delays.into_iter().map(|delay| delay.as_millis() / 1_000).collect()
    }

    fn backoff(kind: BackoffKind) -> Backoff {
        let cap = Some(Duration::from_hours(1));
        Backoff { kind, base: Duration::from_secs(1), multiplier: 2.0, cap, delays: Vec::new() }
    }

    /// Proves G-5.2, G-5.3, G-5.4, G-5.5, G-5.8.
    #[test]
    fn gopherqueue_doubles_from_one_second_to_one_hour() {
        let backoff = Settings::of_profile(Profile::Gopherqueue).policy.retry.backoff;
        assert_eq!(backoff.kind, BackoffKind::Exponential);
        let delays = secs((1..=14).map(|n| backoff.delay(n)));
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]);
        assert_eq!(backoff.delay(u32::MAX), Duration::from_hours(1));
        let slow = Backoff { multiplier: 1.001, ..backoff };
        assert_eq!(slow.delay(5_001).as_millis(), 148_042, "slow growth is not cut off early");
    }

    /// Proves G-5.6, L-26.
    #[test]
    fn constant_backoff_repeats_base() {
        assert_eq!(secs((1..=4).map(|n| backoff(BackoffKind::Constant).delay(n))), [1, 1, 1, 1]);
        let document = Settings::of_profile(Profile::Document).policy.retry.backoff;
        assert_eq!(secs((1..=3).map(|n| document.delay(n))), [1, 1, 1]);
    }

    /// Proves G-5.7.
    #[test]
    fn linear_backoff_grows_to_cap() {
        let linear = backoff(BackoffKind::Linear);
        assert_eq!(secs((1..=4).map(|n| linear.delay(n))), [1, 2, 3, 4]);
        assert_eq!(linear.delay(3_601), Duration::from_hours(1));
        assert_eq!(linear.delay(u32::MAX), Duration::from_hours(1));
    }

    /// Proves G-5.9.
    #[test]
    fn custom_backoff_calls_function() {
        fn fibonacci(n: u32, base: Duration, _cap: Option<Duration>) -> Duration {
            let (mut a, mut b) = (1, 1);
            for _ in 1..n {
                (a, b) = (b, a + b);
            }
            Duration::from_millis(base.as_millis() * a)
        }
        let custom = backoff(BackoffKind::Custom(CustomBackoff { name: "fibonacci", delay: fibonacci }));
        assert_eq!(secs((1..=7).map(|n| custom.delay(n))), [1, 1, 2, 3, 5, 8, 13]);
        assert_eq!(custom.delay(30), Duration::from_hours(1), "the cap holds for custom delays too");
    }

    /// Proves O-50, O-51, O-52, O-53.
    #[test]
    fn list_backoff_repeats_last_delay_and_empty_list_is_no_wait() {
        let mut list = Settings::of_profile(Profile::Ocypod).policy.retry.backoff;
        assert_eq!(list.delay(1), Duration::ZERO);
        list.delays = vec![Duration::from_secs(10), Duration::from_mins(1), Duration::from_mins(5)];
        assert_eq!(secs((1..=4).map(|n| list.delay(n))), [10, 60, 300, 300]);
    }

    /// Proves I-53, I-54.
    #[test]
    fn weave_full_jitter_window_doubles_to_thirty_seconds() {
        let retry = Settings::of_profile(Profile::Weave).policy.retry;
        let mut rng = SeededRng::new(3);
        for (n, window) in [(1, 500), (2, 1_000), (3, 2_000), (6, 16_000), (7, 30_000), (40, 30_000)] {
            assert_eq!(retry.backoff.delay(n).as_millis(), window);
            let drawn: Vec<u64> =
                (0..2_000).map(|_| retry.backoff.jittered(n, retry.jitter, &mut rng).as_millis()).collect();
            assert!(drawn.iter().all(|millis| *millis <= window));
            assert!(drawn.iter().any(|millis| *millis < window / 10), "the window starts at 0");
            assert!(drawn.iter().any(|millis| *millis > window - window / 10), "the window reaches its end");
        }
    }

    /// Proves G-5.13.
    #[test]
    fn symmetric_jitter_deviates_both_ways_within_cap() {
        let exponential = backoff(BackoffKind::Exponential);
        let jitter = Jitter { kind: JitterKind::Symmetric, factor: 0.1 };
        let mut rng = SeededRng::new(5);
        let draw = |n: u32, rng: &mut SeededRng| exponential.jittered(n, jitter, rng).as_millis();
        let drawn: Vec<u64> = (0..2_000).map(|_| draw(1, &mut rng)).collect();
        assert!(drawn.iter().all(|millis| (900..=1_100).contains(millis)));
        assert!(drawn.iter().any(|millis| *millis < 920) && drawn.iter().any(|millis| *millis > 1_080));
        assert!((0..200).all(|_| draw(20, &mut rng) <= 3_600_000));
    }

    /// Proves T-10.
    #[test]
    fn taskharbor_default_is_exponential_with_jitter() {
        let retry = Settings::of_profile(Profile::Taskharbor).policy.retry;
        assert_eq!(retry.backoff.kind, BackoffKind::Exponential);
        assert_eq!(retry.jitter, Jitter { kind: JitterKind::Symmetric, factor: 0.2 });
        assert_eq!(retry.backoff.delay(1).as_millis(), 200);
        assert_eq!(retry.backoff.delay(9).as_millis(), 5_000);
    }
}
