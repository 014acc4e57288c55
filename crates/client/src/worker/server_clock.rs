//! When the server made a response, by the clock of this process.

use std::time::Duration;

use longshore_api::Time;

/// A request with a shorter round trip shows the server's clock well: its sample is always taken.
const SHORT: Duration = Duration::from_millis(250);
/// Age of a sample after which the worker sends a claim that does not wait, as a new sample.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(60);
/// How far the two clocks may drift apart: 500 millionths.
const DRIFT_PART: u32 = 2_000;

/// Finds the earliest time at which a response can have been made.
///
/// A request that was sent at `sent` and has the server's `now` in its response proves that the
/// server's clock was at most `now` at `sent`. A claim that waited at the server proves little by
/// itself: its response was made long after it was sent. The sample of another request says when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockEstimate {
    sample: Option<ClockSample>,
}

/// The server's clock was at most `now` at `sent`.
#[derive(Clone, Copy, Debug)]
struct ClockSample {
    sent: Duration,
    now: Time,
    taken_at: Duration,
}

impl ClockEstimate {
    /// Takes the sample of a response that was received at `received`.
    pub(crate) fn add(&mut self, sent: Duration, received: Duration, now: Time) {
        let is_short = received.saturating_sub(sent) <= SHORT;
        let is_better = self.sample.is_none_or(|sample| sample.earliest(now) <= sent);
        if is_short || is_better {
            self.sample = Some(ClockSample { sent, now, taken_at: received });
        }
    }

    /// Returns the earliest time at which the server can have made a response with its time `now`:
    /// not before the request was sent, and not after the response came.
    pub(crate) fn answered_at(&self, sent: Duration, received: Duration, now: Time) -> Duration {
        let earliest = self.sample.map_or(sent, |sample| sample.earliest(now));
        earliest.max(sent).min(received)
    }

    /// Whether a claim may wait: there is a recent sample to measure its response with.
    pub(crate) fn is_fresh(&self, at: Duration) -> bool {
        self.sample.is_some_and(|sample| at.saturating_sub(sample.taken_at) < SAMPLE_AGE_MAX)
    }
}

impl ClockSample {
    fn earliest(&self, now: Time) -> Duration {
        let elapsed = Duration::from_millis(u64::try_from(now.0.saturating_sub(self.now.0)).unwrap_or(0));
        self.sent + elapsed - elapsed / DRIFT_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_response_after_a_long_wait_is_dated_by_an_earlier_sample() {
        let mut clock = ClockEstimate::default();
        let (sent, received) = (seconds(100), seconds(118));
        assert_eq!(clock.answered_at(sent, received, Time(18_000)), sent, "without a sample: when it was sent");
        clock.add(seconds(100), seconds(100), Time(0));
        let answered = clock.answered_at(sent, received, Time(18_000));
        assert!(answered <= received && answered > seconds(117), "{answered:?}");
    }

    #[test]
    fn a_claim_that_waited_does_not_replace_a_better_sample() {
        let mut clock = ClockEstimate::default();
        clock.add(seconds(100), seconds(100), Time(0));
        clock.add(seconds(100), seconds(118), Time(18_000));
        let answered = clock.answered_at(seconds(118), seconds(138), Time(38_000));
        assert!(answered > seconds(137), "{answered:?}");
    }

    #[test]
    fn a_short_request_replaces_the_sample_after_the_clock_was_set() {
        let mut clock = ClockEstimate::default();
        clock.add(seconds(100), seconds(100), Time(0));
        clock.add(seconds(110), seconds(110), Time(70_000));
        assert_eq!(clock.answered_at(seconds(110), seconds(130), Time(71_000)).as_secs(), 110);
    }

    #[test]
    fn the_result_is_between_request_and_response() {
        let mut clock = ClockEstimate::default();
        clock.add(seconds(100), seconds(100), Time(0));
        assert_eq!(clock.answered_at(seconds(101), seconds(120), Time(3_600_000)), seconds(120), "set forward");
        assert_eq!(clock.answered_at(seconds(101), seconds(120), Time(-5_000)), seconds(101), "set back, or virtual");
    }

    #[test]
    fn a_sample_gets_old() {
        let mut clock = ClockEstimate::default();
        assert!(!clock.is_fresh(seconds(0)));
        clock.add(seconds(100), seconds(100), Time(0));
        assert!(clock.is_fresh(seconds(159)) && !clock.is_fresh(seconds(160)));
    }
}
