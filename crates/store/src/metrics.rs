//! Measurements of a store for the metrics endpoint.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Measurements of a store at one moment. `None`: the store has no such part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreMetrics {
    /// Duration of commits in seconds, from the start of a batch until it is durable.
    pub commit_seconds: Option<HistogramSnapshot>,
    /// Commands per commit.
    pub batch_commands: Option<HistogramSnapshot>,
    /// Size of the write-ahead log.
    pub wal_bytes: Option<u64>,
    /// Age of the watermark in seconds, 0 while it covers the last commit.
    pub watermark_age_seconds: Option<f64>,
    /// Records found in memory, and records read from the database.
    pub cache: Option<HitCount>,
    /// Transactions in one round trip, and transactions that fell back to the slow path.
    pub fast_path: Option<HitCount>,
    /// An earlier write failed: every call fails until a restart.
    pub is_poisoned: bool,
}

/// Hits and misses since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCount {
    pub hits: u64,
    pub misses: u64,
}

const SECONDS: &[f64] = &[0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
const WAIT_SECONDS: &[f64] = &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0];

/// Histogram with fixed buckets. Threads observe without a lock.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One bucket per bound, and one for larger values.
    buckets: Box<[AtomicU64]>,
    /// Sum of the values in millionths.
    sum_micros: AtomicU64,
}

/// State of a [`Histogram`] at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramSnapshot {
    /// Upper bounds and the number of values up to each, cumulative, ascending.
    pub buckets: Vec<(f64, u64)>,
    pub count: u64,
    pub sum: f64,
}

impl Histogram {
    /// Creates a histogram for durations from 250 µs to 2.5 s.
    pub fn seconds() -> Self {
        Self::with_bounds(SECONDS)
    }

    /// Creates a histogram for durations from 500 µs to 30 s, of calls that may wait.
    pub fn wait_seconds() -> Self {
        Self::with_bounds(WAIT_SECONDS)
    }

    /// Creates a histogram for counts from 1 to 2,048.
    pub fn sizes() -> Self {
        Self::with_bounds(SIZES)
    }

    fn with_bounds(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum_micros: AtomicU64::new(0) }
    }

    pub fn observe_duration(&self, duration: Duration) {
        self.observe(duration.as_secs_f64(), u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn observe_count(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.observe(f64::from(count), u64::from(count) * 1_000_000);
    }

    fn observe(&self, value: f64, micros: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (position, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Ordering::Relaxed);
            if let Some(bound) = self.bounds.get(position) {
                buckets.push((*bound, count));
            }
        }
        let sum = Duration::from_micros(self.sum_micros.load(Ordering::Relaxed)).as_secs_f64();
        HistogramSnapshot { buckets, count, sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_has_cumulative_buckets_and_the_sum() {
        let histogram = Histogram::sizes();
        [1, 2, 3, 5_000].into_iter().for_each(|size| histogram.observe_count(size));
        let HistogramSnapshot { buckets, count, sum } = histogram.snapshot();
        assert_eq!(buckets.iter().take(3).map(|(_, count)| *count).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(buckets.last().map(|(_, count)| *count), Some(3));
        assert_eq!((count, sum.round()), (4, 5_006.0));
    }
}
