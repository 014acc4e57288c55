//! When the next call is due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_store::clock::monotonic;
use tokio::time::sleep;

/// Tickets for calls, shared by the tasks of one operation.
#[derive(Debug)]
pub(super) struct RateLimiter {
    started: Duration,
    /// Between two calls; none: as fast as they go.
    apart: Option<Duration>,
    taken: AtomicU64,
}

impl RateLimiter {
    pub(super) fn new(started: Duration, calls_per_second: Option<f64>) -> Self {
        let apart = calls_per_second.map(|rate| Duration::from_secs_f64((1.0 / rate).min(3_600.0)));
        Self { started, apart, taken: AtomicU64::new(0) }
    }

    /// Waits for its turn, and gives the instant from which the call is measured: when it should have been made.
    pub(super) async fn turn(&self) -> Duration {
        let Some(apart) = self.apart else { return monotonic() };
        let ticket = self.taken.fetch_add(1, Ordering::Relaxed);
        let due = self.started + Duration::from_nanos(nanos(apart).saturating_mul(ticket));
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
