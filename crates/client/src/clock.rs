//! The monotonic clock, for timeouts and latencies of clients.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the time since the first call. Never goes back, also when the wall clock is set.
#[expect(clippy::disallowed_methods, reason = "the clock of clients: tests of the rules do not use it")]
pub fn monotonic() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    now.saturating_duration_since(*START.get_or_init(|| now))
}
