//! The retry plan: when a delivery is attempted again.

use std::time::Duration;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Delays after the first attempt, the second, and so on, in milliseconds.
const DELAYS_MS: [u64; 8] = [5 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, 24 * HOUR, 24 * HOUR];

/// Attempts of a plan: the first one and one after each delay.
pub const ATTEMPTS_MAX: u32 = 9;

/// A receiver cannot ask for a longer pause.
pub const RETRY_AFTER_MAX: Duration = Duration::from_millis(24 * HOUR);

const _: () = assert!(DELAYS_MS.len() + 1 == ATTEMPTS_MAX as usize);

/// Returns the delay after this many failed attempts, or `None` if the plan has ended.
///
/// `random` is uniform; it moves the delay by up to 10 % to either side. The later of the plan and
/// `retry_after` decides, and `retry_after` counts up to [`RETRY_AFTER_MAX`].
pub fn delay_after(attempts: u32, retry_after: Option<Duration>, random: u64) -> Option<Duration> {
    let index = usize::try_from(attempts.checked_sub(1)?).ok()?;
    let delay = *DELAYS_MS.get(index)?;
    let span = delay / 5;
    let planned = Duration::from_millis(delay - delay / 10 + random % (span + 1));
    Some(planned.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_those_of_the_contract_with_a_tenth_of_jitter() {
        let seconds = [5, 30, 120, 600, 3_600, 21_600, 86_400, 86_400];
        for (attempts, seconds) in (1..).zip(seconds) {
            let (low, high) = (Duration::from_millis(seconds * 900), Duration::from_millis(seconds * 1_100));
            assert_eq!(delay_after(attempts, None, 0), Some(low));
            assert_eq!(delay_after(attempts, None, seconds * 200), Some(high));
            for random in 0..1_000_u64 {
                let delay = delay_after(attempts, None, random.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
                assert!((low..=high).contains(&delay));
            }
        }
        assert_eq!(delay_after(9, None, 0), None);
        assert_eq!(delay_after(u32::MAX, None, 0), None);
        assert_eq!(delay_after(0, None, 0), None);
    }

    #[test]
    fn the_later_of_plan_and_retry_after_decides() {
        let after = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(delay_after(1, after(60), 0), after(60));
        assert_eq!(delay_after(3, after(60), 0), after(108));
        assert_eq!(delay_after(1, after(1_000_000), 0), after(86_400));
        assert_eq!(delay_after(8, after(1_000_000), 8_640_000), after(86_400));
        assert_eq!(delay_after(9, after(1), 0), None, "a receiver cannot prolong the plan");
    }
}
