//! Rates per second, and the window that they look back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longshore_api::system::{Rates, Stats, ThroughputTotals};

use super::snapshot::Snapshot;

/// The live view looks back this far.
const WINDOW: Duration = Duration::from_secs(10);
/// Looks are not exactly an interval apart: a window that is shorter by this much will do.
const SLACK: Duration = Duration::from_millis(500);
/// The rates of the server look back this far, or to its start.
const SERVER_WINDOW: Duration = Duration::from_secs(60);

/// Rates of every queue over the same window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecentRates {
    window: Duration,
    queues: BTreeMap<String, Rates>,
}

impl RecentRates {
    /// As the server counts them.
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

/// Earlier looks at the counters of a server.
#[derive(Debug, Default)]
pub(super) struct CounterLog {
    looks: VecDeque<Look>,
}

#[derive(Debug)]
struct Look {
    at: Duration,
    total: ThroughputTotals,
    queues: BTreeMap<String, ThroughputTotals>,
}

impl CounterLog {
    /// `at`: by a clock that does not go back.
    pub(super) fn add(&mut self, at: Duration, stats: &Stats) {
        let queues = stats.queues.iter().map(|(name, stats)| (name.clone(), stats.since_start)).collect();
        let look = Look { at, total: stats.totals.since_start, queues };
        // Counters that went down belong to a server that was restarted.
        if self
            .looks
            .back()
            .is_some_and(|last| last.total.submitted > look.total.submitted || last.total.claimed > look.total.claimed)
        {
            self.looks.clear();
        }
        self.looks.push_back(look);
        // One look that is at least as old as the window is kept: it is what the newest is compared with.
        while self.looks.get(1).is_some_and(|second| second.at + WINDOW <= at + SLACK) {
            self.looks.pop_front();
        }
    }

    /// `None` until the looks span the window.
    pub(super) fn rates(&self) -> Option<RecentRates> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let window = last.at.checked_sub(first.at).filter(|window| *window + SLACK >= WINDOW)?;
        let queues = last.queues.iter().map(|(name, tally)| {
            let before = first.queues.get(name).copied().unwrap_or_default();
            (name.clone(), difference(&before, tally, window))
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
        Stats { now: Time(0), totals: queue.clone(), queues: [("mail".to_owned(), queue)].into() }
    }

    #[test]
    fn rates_look_back_ten_seconds() {
        let mut log = CounterLog::default();
        for second in 0..10 {
            log.add(Duration::from_secs(second), &stats(second * 5));
            assert_eq!(log.rates(), None, "{second}");
        }
        // Much was submitted long ago, little lately.
        for second in 10..60 {
            log.add(Duration::from_secs(second), &stats(50 + (second - 10) * 2));
        }
        let rates = log.rates().unwrap();
        assert_eq!((rates.of("mail").submitted, rates.window().as_str()), (2.0, "the last 10 s"));
        assert_eq!(rates.of("unknown"), Rates::default());
        assert!(log.looks.len() <= 11, "{}", log.looks.len());
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
    fn a_restarted_server_counts_anew() {
        let mut log = CounterLog::default();
        log.add(Duration::from_secs(0), &stats(1_000));
        log.add(Duration::from_secs(20), &stats(3));
        assert_eq!(log.rates(), None);
        log.add(Duration::from_secs(30), &stats(23));
        assert_eq!(log.rates().unwrap().of("mail").submitted, 2.0);
    }
}
