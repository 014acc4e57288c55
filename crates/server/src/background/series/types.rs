//! Series of the types of jobs in each queue, at 30 s for 24 hours.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longshore_api::job_type::JobTypePoint;
use longshore_core::Timestamp;
use longshore_core::id::{JobType, QueueName};

use super::track::{EventCounts, Gauges, Group, Observation, Track, Window};
use super::{COARSE_MS, COARSE_WINDOW_MS, IDLE_MS};
use crate::convert::time;

/// Types with a series, in all queues. A new type replaces one that had no event for an hour;
/// without such a type it has no series.
const TYPES_MAX: usize = 1_000;
/// Memory of the points of all types. Above it the oldest points are dropped.
const POINT_BYTES_MAX: usize = 32 << 20;

/// The series of all types.
#[derive(Debug, Default)]
pub(super) struct TypeSeries {
    queues: HashMap<QueueName, HashMap<JobType, OneType>>,
    amount: usize,
    /// Time of the last search for an idle type.
    last_search_ms: i64,
}

#[derive(Debug)]
struct OneType {
    track: Track,
    last_event_ms: i64,
}

/// The sums of all types over a window.
#[derive(Debug)]
pub(crate) struct TypeAnswer {
    pub(crate) since: Timestamp,
    pub(crate) types: BTreeMap<JobType, TypeSums>,
}

/// The sums of one type.
#[derive(Debug, Default)]
pub(crate) struct TypeSums {
    pub(crate) queues: BTreeSet<QueueName>,
    pub(super) sum: Group,
}

impl OneType {
    fn new(now_ms: i64) -> Self {
        let track = Track::new(COARSE_MS, COARSE_WINDOW_MS / COARSE_MS + 1, now_ms, Gauges::default());
        Self { track, last_event_ms: now_ms }
    }
}

impl Observation {
    fn is_empty(&self) -> bool {
        self.counts == EventCounts::default() && self.wait_ms.is_none() && self.run_ms.is_none()
    }
}

impl TypeSeries {
    /// Counts an event of a type. Other transitions change nothing.
    pub(super) fn add(&mut self, queue: &QueueName, job_type: &JobType, at_ms: i64, observation: &Observation) {
        if observation.is_empty() {
            return;
        }
        let is_known = self.queues.get(queue).is_some_and(|types| types.contains_key(job_type));
        if !is_known {
            if !self.has_room(at_ms) {
                return;
            }
            self.amount += 1;
            let types = self.queues.entry(queue.clone()).or_default();
            types.insert(job_type.clone(), OneType::new(at_ms));
        }
        let Some(own) = self.queues.get_mut(queue).and_then(|types| types.get_mut(job_type)) else { return };
        own.track.roll(at_ms, Gauges::default());
        own.track.add(observation);
        own.last_event_ms = own.last_event_ms.max(at_ms);
    }

    /// Whether one more type can be added. Removes an idle type of a full table; a search that
    /// found none is not repeated within the same interval.
    fn has_room(&mut self, now_ms: i64) -> bool {
        if self.amount < TYPES_MAX {
            return true;
        }
        if now_ms - self.last_search_ms < COARSE_MS {
            return false;
        }
        self.last_search_ms = now_ms;
        self.queues.retain(|_, types| {
            types.retain(|_, own| now_ms - own.last_event_ms <= IDLE_MS);
            !types.is_empty()
        });
        self.amount = self.queues.values().map(HashMap::len).sum();
        self.amount < TYPES_MAX
    }

    /// Keeps the bound of memory.
    pub(super) fn drop_points(&mut self, now_ms: i64) {
        let mut used: usize = self.tracks().map(Track::bytes).sum();
        while used > POINT_BYTES_MAX {
            let Some(oldest) = self.tracks().filter_map(Track::first_point_ms).min() else { break };
            // An hour at a time, so that this is rare.
            let limit = (oldest + 3_600_000).min(now_ms);
            for own in self.queues.values_mut().flat_map(HashMap::values_mut) {
                used -= own.track.bytes();
                own.track.drop_before_ms(limit);
                used += own.track.bytes();
            }
            if limit >= now_ms {
                break;
            }
        }
    }

    fn tracks(&self) -> impl Iterator<Item = &Track> {
        self.queues.values().flat_map(HashMap::values).map(|own| &own.track)
    }

    /// Returns the sums of the types with an event since an instant.
    pub(super) fn sums(&self, since_ms: i64, admits: impl Fn(&QueueName) -> bool) -> BTreeMap<JobType, TypeSums> {
        let mut sums: BTreeMap<JobType, TypeSums> = BTreeMap::new();
        for (queue, types) in self.queues.iter().filter(|(queue, _)| admits(queue)) {
            for (job_type, own) in types {
                let sum = own.track.sum_since(since_ms);
                if sum.is_empty() {
                    continue;
                }
                let all = sums.entry(job_type.clone()).or_default();
                all.queues.insert(queue.clone());
                all.sum.merge(&sum);
            }
        }
        sums
    }

    /// Adds the points of a type to the intervals of an answer.
    pub(super) fn sum_into(
        &self,
        job_type: &JobType,
        window: Window,
        admits: impl Fn(&QueueName) -> bool,
        groups: &mut [Group],
    ) {
        let of_type =
            self.queues.iter().filter(|(queue, _)| admits(queue)).filter_map(|(_, types)| types.get(job_type));
        of_type.for_each(|own| own.track.sum_into(window, Gauges::default(), groups));
    }
}

impl TypeSums {
    /// Returns these sums as the figures of a response.
    pub(crate) fn to_wire(&self, job_type: &JobType) -> longshore_api::job_type::JobTypeStats {
        longshore_api::job_type::JobTypeStats {
            job_type: job_type.to_string(),
            queues: self.queues.iter().map(ToString::to_string).collect(),
            submitted: self.sum.submitted,
            completed: self.sum.completed,
            failed: self.sum.failed,
            wait: self.sum.wait.quantiles(),
            run: self.sum.run.quantiles(),
        }
    }
}

pub(super) fn to_points(window: Window, groups: Vec<Group>) -> Vec<JobTypePoint> {
    let point = |(number, group): (i64, Group)| JobTypePoint {
        at: time(Timestamp::from_millis((window.first + number) * window.step_ms)),
        submitted: group.submitted,
        completed: group.completed,
        failed: group.failed,
        wait: group.wait.quantiles(),
        run: group.run.quantiles(),
    };
    (0..).zip(groups).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(run_ms: u64) -> Observation {
        Observation {
            counts: EventCounts { completed: 1, ..EventCounts::default() },
            wait_ms: None,
            run_ms: Some(run_ms),
        }
    }

    fn queue(text: &str) -> QueueName {
        QueueName::new(text).unwrap()
    }

    fn job_type(text: &str) -> JobType {
        JobType::new(text).unwrap()
    }

    #[test]
    fn sums_join_queues_and_leave_out_the_others() {
        let mut series = TypeSeries::default();
        series.add(&queue("a"), &job_type("t"), 1_000, &ended(10));
        series.add(&queue("b"), &job_type("t"), 100_000, &ended(10));
        series.add(&queue("b"), &job_type("u"), 100_000, &Observation::default());
        let all = series.sums(0, |_| true);
        assert_eq!(all.keys().map(ToString::to_string).collect::<Vec<_>>(), ["t"], "a transition is no event");
        let of_t = &all[&job_type("t")];
        assert_eq!((of_t.sum.completed, of_t.queues.len()), (2, 2));
        assert_eq!(series.sums(90_000, |_| true)[&job_type("t")].sum.completed, 1);
        assert!(series.sums(90_000, |name| *name == queue("a")).is_empty());
    }

    #[test]
    fn a_full_table_takes_a_type_only_after_one_is_idle() {
        let mut series = TypeSeries::default();
        for number in 0..TYPES_MAX {
            series.add(&queue("q"), &job_type(&format!("t{number}")), 0, &ended(1));
        }
        series.add(&queue("q"), &job_type("t0"), IDLE_MS, &ended(1));
        series.add(&queue("q"), &job_type("new"), IDLE_MS, &ended(1));
        assert_eq!(series.sums(0, |_| true).len(), TYPES_MAX, "no type is idle yet");
        series.add(&queue("q"), &job_type("new"), 2 * IDLE_MS, &ended(1));
        let left = series.sums(0, |_| true);
        assert_eq!(left.keys().map(ToString::to_string).collect::<Vec<_>>(), ["new", "t0"]);
    }
}
