//! When the next request is due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore::monotonic;
use tokio::time::sleep;

/// Hands out time slots to the tasks of one operation.
#[derive(Debug)]
pub(super) struct RateLimiter {
    started: Duration,
    /// Time between two requests; `None` is unlimited.
    interval: Option<Duration>,
    slots_used: AtomicU64,
}

impl RateLimiter {
    pub(super) fn new(started: Duration, calls_per_second: Option<f64>) -> Self {
        let interval = calls_per_second.map(|rate| Duration::from_secs_f64((1.0 / rate).min(3_600.0)));
        Self { started, interval, slots_used: AtomicU64::new(0) }
    }

    /// Waits for the next slot and returns its time. Latency counts from there, also if the task is
    /// late.
    pub(super) async fn next_slot(&self) -> Duration {
        let Some(interval) = self.interval else { return monotonic() };
        let slot = self.slots_used.fetch_add(1, Ordering::Relaxed);
        let due = self.started + Duration::from_nanos(nanos(interval).saturating_mul(slot));
        let early = due.saturating_sub(monotonic());
        if !early.is_zero() {
            sleep(early).await;
        }
        due
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
