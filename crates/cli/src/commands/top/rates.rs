//! Rates per second and their window.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longshore_api::system::{Rates, Stats, ThroughputTotals};

use super::snapshot::Snapshot;

/// Window of the live view.
const WINDOW: Duration = Duration::from_secs(10);
/// Tolerance of the window: samples are not exactly one interval apart.
const SLACK: Duration = Duration::from_millis(500);
/// Window of the server's own rates; shorter after its start.
const SERVER_WINDOW: Duration = Duration::from_secs(60);

/// Rates of every queue over the same window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecentRates {
    window: Duration,
    queues: BTreeMap<String, Rates>,
}

impl RecentRates {
    /// The rates that the server reports.
    pub(super) fn of_server(snapshot: &Snapshot) -> Self {
        let queues = snapshot.stats.queues.iter().map(|(name, stats)| (name.clone(), stats.rates));
        let uptime = snapshot.info.uptime.as_std().max(Duration::from_secs(1));
        Self { window: SERVER_WINDOW.min(uptime), queues: queues.collect() }
    }

    pub(super) fn of(&self, queue: &str) -> Rates {
        self.queues.get(queue).copied().unwrap_or_default()
    }

    pub(super) fn window(&self) -> String {
        format!("the last {:.0} s", self.window.as_secs_f64())
    }
}

/// Samples of the counters of a server.
#[derive(Debug, Default)]
pub(super) struct CounterLog {
    samples: VecDeque<CounterSample>,
}

#[derive(Debug)]
struct CounterSample {
    at: Duration,
    total: ThroughputTotals,
    queues: BTreeMap<String, ThroughputTotals>,
}

impl CounterLog {
    /// Adds a sample. `at` is a monotonic time.
    pub(super) fn add(&mut self, at: Duration, stats: &Stats) {
        let queues = stats.queues.iter().map(|(name, stats)| (name.clone(), stats.since_start)).collect();
        let sample = CounterSample { at, total: stats.totals.since_start, queues };
        // Counters decrease only when the server was restarted.
        if self.samples.back().is_some_and(|last| {
            last.total.submitted > sample.total.submitted || last.total.claimed > sample.total.claimed
        }) {
            self.samples.clear();
        }
        self.samples.push_back(sample);
        // The oldest sample is at least as old as the window; rates compare it with the newest.
        while self.samples.get(1).is_some_and(|second| second.at + WINDOW <= at + SLACK) {
            self.samples.pop_front();
        }
    }

    /// Returns the rates, or `None` until the samples span the window.
    pub(super) fn rates(&self) -> Option<RecentRates> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let window = last.at.checked_sub(first.at).filter(|window| *window + SLACK >= WINDOW)?;
        let queues = last.queues.iter().map(|(name, totals)| {
            let before = first.queues.get(name).copied().unwrap_or_default();
            (name.clone(), difference(&before, totals, window))
        });
        Some(RecentRates { window, queues: queues.collect() })
    }
}

fn difference(before: &ThroughputTotals, after: &ThroughputTotals, window: Duration) -> Rates {
    let rate = |before: u64, after: u64| {
        f64::from(u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX)) / window.as_secs_f64()
    };
    Rates {
        submitted: rate(before.submitted, after.submitted),
        claimed: rate(before.claimed, after.claimed),
        completed: rate(before.completed, after.completed),
        failed: rate(before.failed, after.failed),
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::Time;
    use longshore_api::system::QueueStats;

    use super::*;

    fn stats(submitted: u64) -> Stats {
        let queue = QueueStats {
            since_start: ThroughputTotals { submitted, ..ThroughputTotals::default() },
            ..QueueStats::default()
        };
        Stats { now: Time(0), series: None, totals: queue.clone(), queues: [("mail".to_owned(), queue)].into() }
    }

    #[test]
    fn the_window_is_ten_seconds() {
        let mut log = CounterLog::default();
        for second in 0..10 {
            log.add(Duration::from_secs(second), &stats(second * 5));
            assert_eq!(log.rates(), None, "{second}");
        }
        // The rate drops after ten seconds.
        for second in 10..60 {
            log.add(Duration::from_secs(second), &stats(50 + (second - 10) * 2));
        }
        let rates = log.rates().unwrap();
        assert_eq!((rates.of("mail").submitted, rates.window().as_str()), (2.0, "the last 10 s"));
        assert_eq!(rates.of("unknown"), Rates::default());
        assert!(log.samples.len() <= 11, "{}", log.samples.len());
    }

    #[test]
    fn a_long_interval_is_a_longer_window() {
        let mut log = CounterLog::default();
        log.add(Duration::from_secs(0), &stats(0));
        log.add(Duration::from_secs(30), &stats(60));
        let rates = log.rates().unwrap();
        assert_eq!((rates.of("mail").submitted, rates.window().as_str()), (2.0, "the last 30 s"));
    }

    #[test]
    fn a_restart_of_the_server_clears_the_samples() {
        let mut log = CounterLog::default();
        log.add(Duration::from_secs(0), &stats(1_000));
        log.add(Duration::from_secs(20), &stats(3));
        assert_eq!(log.rates(), None);
        log.add(Duration::from_secs(30), &stats(23));
        assert_eq!(log.rates().unwrap().of("mail").submitted, 2.0);
    }
}
