//! Throughput: counters per queue, and their rates over the last minute of real time.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use longshore_api::system::{Rates, ThroughputTotals as Totals};
use longshore_core::history::Transition;
use longshore_core::id::QueueName;
use longshore_core::state::StateKind;
use longshore_store::clock::monotonic;
use parking_lot::{Mutex, MutexGuard};

/// Window of a rate, in seconds.
const WINDOW: usize = 60;
/// Queues with their own counters; the others are in the totals only.
const QUEUES_MAX: usize = 1_000;

/// A counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Submitted,
    Claimed,
    Completed,
    Failed,
}

impl Event {
    const COUNT: usize = 4;

    fn of(transition: &Transition) -> Option<Self> {
        match (transition.from, transition.to) {
            (None, _) => Some(Self::Submitted),
            (Some(_), StateKind::Running) => Some(Self::Claimed),
            (Some(_), StateKind::Completed) => Some(Self::Completed),
            (Some(StateKind::Running), StateKind::Retrying | StateKind::Failed | StateKind::DeadLetter) => {
                Some(Self::Failed)
            }
            (Some(_), _) => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ThroughputStats(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: Counter,
    queues: HashMap<QueueName, Counter>,
}

type Numbers = [u64; Event::COUNT];

/// Totals, and a ring buffer with one slot per second.
#[derive(Clone, Debug)]
struct Counter {
    total: Numbers,
    seconds: Box<[(u64, Numbers); WINDOW]>,
}

impl Default for Counter {
    fn default() -> Self {
        Self { total: [0; Event::COUNT], seconds: Box::new([(u64::MAX, [0; Event::COUNT]); WINDOW]) }
    }
}

/// Rates and totals of one queue, or of all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueThroughput {
    pub rates: Rates,
    pub since_start: Totals,
}

#[derive(Debug)]
pub(crate) struct ThroughputSnapshot {
    pub all: QueueThroughput,
    pub queues: HashMap<QueueName, QueueThroughput>,
}

impl ThroughputSnapshot {
    /// Returns the sum over some queues.
    pub(crate) fn sum_of(&self, names: &HashSet<&QueueName>) -> QueueThroughput {
        let mut sum = QueueThroughput::default();
        for (_, queue) in self.queues.iter().filter(|(name, _)| names.contains(name)) {
            sum.rates.submitted += queue.rates.submitted;
            sum.rates.claimed += queue.rates.claimed;
            sum.rates.completed += queue.rates.completed;
            sum.rates.failed += queue.rates.failed;
            sum.since_start.submitted += queue.since_start.submitted;
            sum.since_start.claimed += queue.since_start.claimed;
            sum.since_start.completed += queue.since_start.completed;
            sum.since_start.failed += queue.since_start.failed;
        }
        sum
    }
}

impl Counter {
    #[expect(clippy::indexing_slicing, reason = "one number per event, one slot per second of the window")]
    fn add(&mut self, event: Event, second: u64) {
        self.total[event as usize] += 1;
        let (at, numbers) = &mut self.seconds[slot(second)];
        if *at != second {
            (*at, *numbers) = (second, [0; Event::COUNT]);
        }
        numbers[event as usize] += 1;
    }

    /// `now` is the time since the server started.
    fn throughput(&self, now: Duration) -> QueueThroughput {
        let second = now.as_secs();
        let recent = |at: u64| at <= second && second - at < WINDOW as u64;
        let mut sums = [0.0; Event::COUNT];
        for (_, numbers) in self.seconds.iter().filter(|(at, _)| recent(*at)) {
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum += f64::from(u32::try_from(*number).unwrap_or(u32::MAX));
            }
        }
        let span = now.as_secs_f64().clamp(1.0, WINDOW as f64);
        let [submitted, claimed, completed, failed] = sums.map(|sum| (sum / span * 1_000.0).round() / 1_000.0);
        let rates = Rates { submitted, claimed, completed, failed };
        let [submitted, claimed, completed, failed] = self.total;
        QueueThroughput { rates, since_start: Totals { submitted, claimed, completed, failed } }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "less than the window")]
fn slot(second: u64) -> usize {
    (second % WINDOW as u64) as usize
}

impl ThroughputStats {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }

    /// Counts the transitions of one commit.
    pub(crate) fn count<'a>(&self, transitions: impl Iterator<Item = (&'a QueueName, &'a Transition)>) {
        self.count_at(monotonic(), transitions);
    }

    fn count_at<'a>(&self, now: Duration, transitions: impl Iterator<Item = (&'a QueueName, &'a Transition)>) {
        let second = now.as_secs();
        let mut counts = self.counts();
        for (queue, transition) in transitions {
            let Some(event) = Event::of(transition) else { continue };
            counts.all.add(event, second);
            if let Some(counter) = counts.queues.get_mut(queue) {
                counter.add(event, second);
            } else if counts.queues.len() < QUEUES_MAX {
                counts.queues.entry(queue.clone()).or_default().add(event, second);
            }
        }
    }

    pub(crate) fn snapshot(&self) -> ThroughputSnapshot {
        self.snapshot_at(monotonic())
    }

    fn snapshot_at(&self, now: Duration) -> ThroughputSnapshot {
        let counts = self.counts();
        let queues = counts.queues.iter().map(|(name, counter)| (name.clone(), counter.throughput(now)));
        ThroughputSnapshot { all: counts.all.throughput(now), queues: queues.collect() }
    }

    /// Removes the counters of deleted queues.
    pub(crate) fn retain(&self, keep: impl Fn(&QueueName) -> bool) {
        self.counts().queues.retain(|name, _| keep(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_core::Timestamp;
    use longshore_core::history::Cause;

    fn step(from: Option<StateKind>, to: StateKind) -> Transition {
        Transition { from, to, at: Timestamp::from_millis(0), cause: Cause::Create }
    }

    #[test]
    fn rates_cover_the_last_minute() {
        let stats = ThroughputStats::default();
        let queue = QueueName::new("q").unwrap();
        let created = step(None, StateKind::Pending);
        for second in 0..120 {
            let transitions = std::iter::repeat_n((&queue, &created), 30);
            stats.count_at(Duration::from_secs(second), transitions);
        }
        let failed = step(Some(StateKind::Running), StateKind::Retrying);
        stats.count_at(Duration::from_secs(119), [(&queue, &failed)].into_iter());
        let snapshot = stats.snapshot_at(Duration::from_secs(119));
        assert_eq!((snapshot.all.rates.submitted, snapshot.all.since_start.submitted), (30.0, 3_600));
        assert_eq!(snapshot.queues[&queue].since_start.failed, 1);
        let later = stats.snapshot_at(Duration::from_secs(119 + 30));
        assert_eq!(later.all.rates.submitted, 15.0);
        assert_eq!(stats.snapshot_at(Duration::from_secs(400)).all.rates.submitted, 0.0);
        stats.retain(|_| false);
        assert!(stats.snapshot_at(Duration::from_secs(400)).queues.is_empty());
    }
}
