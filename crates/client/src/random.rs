//! Random numbers: idempotency keys and jitter.

use std::time::Duration;

use crate::error::Error;

/// Returns 64 random bits of the operating system; 0 if it has none, which only costs jitter.
fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}

/// Returns a new idempotency key of 128 random bits.
pub(crate) fn new_key() -> Option<String> {
    let (high, low) = (getrandom::u64().ok()?, getrandom::u64().ok()?);
    Some(format!("sdk-{high:016x}{low:016x}"))
}

/// Returns a random duration between half of `backoff` and `backoff`.
pub(crate) fn jittered(backoff: Duration) -> Duration {
    let nanos = u64::try_from(backoff.as_nanos()).unwrap_or(u64::MAX);
    let half = nanos / 2;
    Duration::from_nanos(half + random() % (nanos - half).max(1))
}

/// A jittered exponential backoff.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackoffTimer {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl BackoffTimer {
    pub(crate) const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first }
    }

    /// Returns the wait before the next try.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = jittered(self.next);
        self.next = (self.next * 2).min(self.max);
        delay
    }

    /// As [`BackoffTimer::next_delay`], but not shorter than the wait that the server asks for.
    /// `most` bounds that wait.
    pub(crate) fn next_delay_after(&mut self, error: &Error, most: Duration) -> Duration {
        self.next_delay().max(error.retry_after().unwrap_or_default().min(most))
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ() {
        assert_ne!(new_key().unwrap(), new_key().unwrap());
    }

    #[test]
    fn a_backoff_grows_to_its_limit_and_has_jitter() {
        let (first, max) = (Duration::from_millis(100), Duration::from_millis(350));
        let mut backoff = BackoffTimer::new(first, max);
        for bound in [100, 200, 350, 350] {
            let delay = backoff.next_delay();
            let bound = Duration::from_millis(bound);
            assert!(delay >= bound / 2 && delay <= bound, "{delay:?} of {bound:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= first);
    }
}
