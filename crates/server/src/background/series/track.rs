//! The points of one queue at one resolution.

use std::collections::VecDeque;

use super::durations::{DurationCounts, PackedCounts};

/// Counted events of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventCounts {
    pub(super) submitted: u32,
    pub(super) completed: u32,
    pub(super) failed: u32,
}

/// Jobs in some states at the end of an interval. They may be below zero for a moment, until the
/// next reading of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gauges {
    /// Pending, scheduled, delayed and retrying jobs.
    pub(super) depth: i64,
    pub(super) ready: i64,
    pub(super) slots: i64,
    pub(super) dead_letters: i64,
}

/// One effect, as a track counts it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observation {
    pub(super) counts: EventCounts,
    pub(super) wait_ms: Option<u64>,
    pub(super) run_ms: Option<u64>,
}

/// A closed interval. An interval without events and with the gauges of the one before it has no
/// point.
#[derive(Clone, Debug)]
struct Point {
    index: i64,
    counts: EventCounts,
    gauges: Gauges,
    wait: PackedCounts,
    run: PackedCounts,
}

impl Point {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.wait.bytes() + self.run.bytes()
    }
}

/// The interval that is not over yet.
#[derive(Clone, Debug, Default)]
struct OpenInterval {
    index: i64,
    counts: EventCounts,
    wait: DurationCounts,
    run: DurationCounts,
}

/// Points of one resolution, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Track {
    width_ms: i64,
    /// Intervals that are kept.
    kept: i64,
    open: OpenInterval,
    points: VecDeque<Point>,
    bytes: usize,
    /// Gauges before the first point.
    before: Gauges,
}

/// One interval of an answer, while it is summed up.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) gauges: Gauges,
    pub(super) wait: DurationCounts,
    pub(super) run: DurationCounts,
}

/// The intervals of an answer: `count` of them, `step_ms` long, from number `first` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) first: i64,
    pub(super) count: usize,
    pub(super) step_ms: i64,
}

impl Track {
    pub(super) fn new(width_ms: i64, kept: i64, now_ms: i64, gauges: Gauges) -> Self {
        let open = OpenInterval { index: now_ms.div_euclid(width_ms), ..OpenInterval::default() };
        Self { width_ms, kept, open, points: VecDeque::new(), bytes: 0, before: gauges }
    }

    /// Returns the memory of the closed intervals.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Closes the open interval if it is over. `gauges` are those of its end.
    pub(super) fn roll(&mut self, now_ms: i64, gauges: Gauges) {
        let index = now_ms.div_euclid(self.width_ms);
        // A late event counts in the open interval.
        if index <= self.open.index {
            return;
        }
        let OpenInterval { index: closed, counts, wait, run } = &mut self.open;
        let last = self.points.back().map_or(self.before, |point| point.gauges);
        if *counts != EventCounts::default() || !wait.is_empty() || !run.is_empty() || last != gauges {
            let (wait, run) = (wait.pack(), run.pack());
            let point = Point { index: *closed, counts: std::mem::take(counts), gauges, wait, run };
            self.bytes += point.bytes();
            self.points.push_back(point);
        }
        self.open.index = index;
        self.drop_before(index - self.kept);
    }

    /// Drops the points before an interval.
    fn drop_before(&mut self, index: i64) {
        while let Some(first) = self.points.pop_front_if(|point| point.index < index) {
            self.bytes -= first.bytes();
            self.before = first.gauges;
        }
    }

    /// Drops the points before an instant.
    pub(super) fn drop_before_ms(&mut self, instant_ms: i64) {
        self.drop_before(instant_ms.div_euclid(self.width_ms));
    }

    /// Returns the gauges before the interval of an instant. `gauges` are those of now.
    pub(super) fn gauges_before(&self, instant_ms: i64, gauges: Gauges) -> Gauges {
        let index = instant_ms.div_euclid(self.width_ms);
        if self.open.index < index {
            return gauges;
        }
        let earlier = self.points.partition_point(|point| point.index < index);
        let last = earlier.checked_sub(1).and_then(|last| self.points.get(last));
        last.map_or(self.before, |point| point.gauges)
    }

    /// Returns the start of the first point.
    pub(super) fn first_point_ms(&self) -> Option<i64> {
        self.points.front().map(|point| point.index * self.width_ms)
    }

    pub(super) fn add(&mut self, observation: &Observation) {
        let Observation { counts, wait_ms, run_ms } = observation;
        let own = &mut self.open.counts;
        own.submitted = own.submitted.saturating_add(counts.submitted);
        own.completed = own.completed.saturating_add(counts.completed);
        own.failed = own.failed.saturating_add(counts.failed);
        wait_ms.iter().for_each(|millis| self.open.wait.add(*millis));
        run_ms.iter().for_each(|millis| self.open.run.add(*millis));
    }

    /// Returns the sum of the intervals from an instant on; without gauges.
    pub(super) fn sum_since(&self, instant_ms: i64) -> Group {
        let first = instant_ms.div_euclid(self.width_ms);
        let mut sum = Group::default();
        for point in self.points.iter().skip_while(|point| point.index < first) {
            sum.add_counts(point.counts);
            sum.wait.merge_packed(&point.wait);
            sum.run.merge_packed(&point.run);
        }
        if self.open.index >= first {
            sum.add_counts(self.open.counts);
            sum.wait.merge(&self.open.wait);
            sum.run.merge(&self.open.run);
        }
        sum
    }

    /// Adds the points to the intervals of an answer. `gauges` are those of now.
    pub(super) fn sum_into(&self, window: Window, gauges: Gauges, groups: &mut [Group]) {
        let group_of = |index: i64| (index * self.width_ms).div_euclid(window.step_ms) - window.first;
        let mut points = self.points.iter().peekable();
        let mut last = self.before;
        for (number, group) in groups.iter_mut().enumerate() {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            while let Some(point) = points.next_if(|point| group_of(point.index) <= number) {
                last = point.gauges;
                if group_of(point.index) == number {
                    group.add_counts(point.counts);
                    group.wait.merge_packed(&point.wait);
                    group.run.merge_packed(&point.run);
                }
            }
            let is_now = group_of(self.open.index) == number;
            if is_now {
                group.add_counts(self.open.counts);
                group.wait.merge(&self.open.wait);
                group.run.merge(&self.open.run);
            }
            // From the open interval on, the gauges are those of now. It may be over: only an
            // effect closes it, so that an effect that arrives after a read still counts there.
            group.gauges.add(if group_of(self.open.index) <= number { gauges } else { last });
        }
    }
}

impl Group {
    /// Adds another sum; without gauges.
    pub(super) fn merge(&mut self, other: &Self) {
        self.submitted += other.submitted;
        self.completed += other.completed;
        self.failed += other.failed;
        self.wait.merge(&other.wait);
        self.run.merge(&other.run);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.submitted + self.completed + self.failed == 0 && self.wait.is_empty() && self.run.is_empty()
    }

    fn add_counts(&mut self, counts: EventCounts) {
        self.submitted += u64::from(counts.submitted);
        self.completed += u64::from(counts.completed);
        self.failed += u64::from(counts.failed);
    }
}

impl Gauges {
    pub(super) fn add(&mut self, other: Self) {
        self.depth += other.depth;
        self.ready += other.ready;
        self.slots += other.slots;
        self.dead_letters += other.dead_letters;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed() -> Observation {
        let counts = EventCounts { completed: 1, ..EventCounts::default() };
        Observation { counts, wait_ms: Some(5), run_ms: None }
    }

    fn depth(depth: i64) -> Gauges {
        Gauges { depth, ..Gauges::default() }
    }

    #[test]
    fn idle_intervals_need_no_points_and_keep_their_gauges() {
        let mut track = Track::new(1_000, 300, 500, depth(2));
        track.add(&completed());
        track.roll(1_200, depth(3));
        track.roll(9_000, depth(3));
        assert_eq!(track.points.len(), 1);
        let window = Window { first: 0, count: 10, step_ms: 1_000 };
        let mut groups = vec![Group::default(); window.count];
        track.sum_into(window, depth(7), &mut groups);
        let seen: Vec<_> = groups.iter().map(|group| (group.completed, group.gauges.depth)).collect();
        assert_eq!(seen[..3], [(1, 3), (0, 3), (0, 3)]);
        assert_eq!((seen[8], seen[9]), ((0, 3), (0, 7)), "the last interval is open");
        // Steps of several intervals sum them up; the gauges are those of the end.
        let window = Window { first: 0, count: 2, step_ms: 5_000 };
        let mut groups = vec![Group::default(); 2];
        track.sum_into(window, depth(7), &mut groups);
        assert_eq!((groups[0].completed, groups[0].gauges.depth, groups[1].gauges.depth), (1, 3, 7));
        assert!(groups[0].wait.quantiles().is_some() && groups[1].wait.quantiles().is_none());
    }

    #[test]
    fn old_points_are_dropped_and_a_jump_is_cheap() {
        let mut track = Track::new(1_000, 10, 0, depth(0));
        for second in 0..100 {
            track.roll(second * 1_000, depth(second));
            track.add(&completed());
        }
        assert!((9..=11).contains(&track.points.len()), "{}", track.points.len());
        let day = 86_400_000;
        track.roll(400_000 * day, depth(1));
        assert_eq!((track.points.len(), track.bytes()), (0, 0));
        assert_eq!(track.before, depth(1));
    }
}
