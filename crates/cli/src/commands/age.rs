//! Formats ages in at most six characters.

use longshore_api::Time;

/// Formats an age with its two largest units: `4s`, `5m12s`, `3h7m`, `12d4h`. An instant in the
/// future is `0s` old.
pub(super) fn age_between(then: Time, now: Time) -> String {
    let seconds = u64::try_from(now.0.saturating_sub(then.0)).unwrap_or(0) / 1_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m{}s", seconds % 60),
        3_600..86_400 => format!("{hours}h{minutes}m"),
        86_400..8_640_000 => format!("{days}d{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_and_are_short() {
        let age = |seconds: i64| age_between(Time(1_000), Time(1_000 + seconds * 1_000));
        assert_eq!(age(0), "0s");
        assert_eq!(age(-5), "0s");
        assert_eq!(age(59), "59s");
        assert_eq!(age(312), "5m12s");
        assert_eq!(age(3 * 3_600 + 7 * 60 + 59), "3h7m");
        assert_eq!(age(12 * 86_400 + 4 * 3_600), "12d4h");
        for seconds in [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 100 * 86_400 - 1, 100 * 86_400, 36_500 * 86_400] {
            assert!(age(seconds).len() <= 6, "{}", age(seconds));
        }
    }
}
