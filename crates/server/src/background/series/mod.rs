//! Series of what happened in the queues: for 24 hours at 30 s, for 5 minutes at 1 s.
//!
//! They are in memory: a restart begins new ones. Events and durations come from the effects of the
//! commits of this server. The numbers of jobs follow the effects too, and a reading of the store
//! corrects them every few seconds: jobs also change at other servers, and end their retention
//! without an effect.
//!
//! Memory is bounded: [`QUEUES_MAX`] queues, [`POINT_BYTES_MAX`] bytes of points. Totals are exact
//! for all queues.

mod durations;
mod sampler;
mod track;
mod types;

use std::collections::{HashMap, HashSet};

use longshore_api::job_type::JobTypePoint;
use longshore_api::system::SeriesPoint;
use longshore_core::Timestamp;
use longshore_core::id::{JobType, QueueName};
use longshore_core::state::StateKind;
use longshore_engine::{Effect, StateCounts, count_of};
use longshore_store::QueueStats;
use parking_lot::Mutex;

use crate::convert::time;
use track::{Gauges, Group, Observation, Track, Window};

pub(crate) use sampler::{keep_sampling, start};
use types::TypeSeries;
pub(crate) use types::{TypeAnswer, TypeSums};

/// Queues with series of their own. A new queue replaces one that had no event for
/// [`IDLE_MS`]; without such a queue it counts in the totals only.
const QUEUES_MAX: usize = 1_000;
/// A queue without events for this long makes room for another one.
const IDLE_MS: i64 = 3_600_000;
/// Memory of the points of all queues. Above it the oldest points of queues are dropped.
const POINT_BYTES_MAX: usize = 64 << 20;
/// Points of all series of one answer. The busiest queues come first.
const ANSWER_POINTS_MAX: usize = 200_000;

/// Types of a queue that are remembered as ready.
const TYPES_MAX: usize = 100;

const FINE_MS: i64 = 1_000;
/// Longest window at 1 s.
pub(crate) const FINE_WINDOW_MS: i64 = 300_000;
pub(crate) const COARSE_MS: i64 = 30_000;
/// Longest window at 30 s.
pub(crate) const COARSE_WINDOW_MS: i64 = 86_400_000;

/// The series of all queues and their totals.
#[derive(Debug)]
pub(crate) struct SeriesStore(Mutex<AllSeries>);

#[derive(Debug)]
struct AllSeries {
    since: Timestamp,
    total: Series,
    queues: HashMap<QueueName, Series>,
    types: TypeSeries,
    /// A queue that found no room, to be added when another one is idle.
    waiting: Option<QueueName>,
    /// Coarse interval in which the memory was measured last.
    last_drop: i64,
}

/// The series of one queue, or of all.
#[derive(Debug)]
struct Series {
    since_ms: i64,
    gauges: Gauges,
    fine: Track,
    coarse: Track,
    /// Effects so far, and at the start of the last reading of the store.
    effects: u64,
    effects_before_reading: u64,
    last_effect_ms: i64,
    /// Types of jobs that became ready; a type leaves when a look finds no ready job of it.
    ready_types: HashSet<JobType>,
}

/// What a request wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeriesSpec {
    pub(crate) window_ms: i64,
    pub(crate) step_ms: i64,
}

/// The series of an answer.
#[derive(Debug)]
pub(crate) struct SeriesAnswer {
    pub(crate) since: Timestamp,
    pub(crate) totals: Vec<SeriesPoint>,
    pub(crate) queues: HashMap<QueueName, Vec<SeriesPoint>>,
}

/// What the rules of attention need of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentEvents {
    pub(crate) failed: u64,
    pub(crate) completed: u64,
    /// Start of the first interval with a failure.
    pub(crate) failing_since: Option<Timestamp>,
    /// Dead letters at the start of the window.
    pub(crate) dead_letters_before: u64,
    /// Start of the first interval with more of them.
    pub(crate) growing_since: Option<Timestamp>,
}

/// Returns the event that an effect counts as, with its durations.
fn observe(effect: &Effect) -> Option<(&QueueName, Timestamp, Observation, Gauges)> {
    let Effect::Moved { queue, step, since, .. } = effect else { return None };
    let mut observation = Observation::default();
    let millis = since.map(|since| step.at.since(since).as_millis());
    let is_end_of_attempt = step.from == Some(StateKind::Running);
    match step.to {
        StateKind::Running => observation.wait_ms = millis,
        StateKind::Completed => {
            observation.counts.completed = 1;
            observation.run_ms = millis;
        }
        StateKind::Retrying | StateKind::Failed | StateKind::DeadLetter if is_end_of_attempt => {
            observation.counts.failed = 1;
            observation.run_ms = millis;
        }
        StateKind::Pending
        | StateKind::Scheduled
        | StateKind::Delayed
        | StateKind::Retrying
        | StateKind::Failed
        | StateKind::DeadLetter
        | StateKind::Cancelled => {}
    }
    observation.counts.submitted = u32::from(step.from.is_none());
    let mut change = Gauges::default();
    step.from.iter().for_each(|from| change.count(*from, -1));
    change.count(step.to, 1);
    Some((queue, step.at, observation, change))
}

impl Gauges {
    fn count(&mut self, state: StateKind, jobs: i64) {
        self.depth += if state.is_waiting() { jobs } else { 0 };
        match state {
            StateKind::Scheduled => self.ready += jobs,
            StateKind::Running => self.slots += jobs,
            StateKind::DeadLetter => self.dead_letters += jobs,
            StateKind::Pending
            | StateKind::Delayed
            | StateKind::Retrying
            | StateKind::Completed
            | StateKind::Failed
            | StateKind::Cancelled => {}
        }
    }

    fn of_counts(counts: &StateCounts) -> Self {
        let mut gauges = Self::default();
        for state in StateKind::ALL {
            gauges.count(*state, i64::try_from(count_of(counts, *state)).unwrap_or(i64::MAX));
        }
        gauges
    }
}

impl Series {
    fn new(now_ms: i64, gauges: Gauges) -> Self {
        Self {
            since_ms: now_ms,
            gauges,
            fine: Track::new(FINE_MS, FINE_WINDOW_MS / FINE_MS + 1, now_ms, gauges),
            coarse: Track::new(COARSE_MS, COARSE_WINDOW_MS / COARSE_MS + 1, now_ms, gauges),
            effects: 0,
            effects_before_reading: 0,
            last_effect_ms: now_ms,
            ready_types: HashSet::new(),
        }
    }

    fn roll(&mut self, now_ms: i64) {
        self.fine.roll(now_ms, self.gauges);
        self.coarse.roll(now_ms, self.gauges);
    }

    fn add(&mut self, at_ms: i64, observation: &Observation, change: Gauges) {
        self.roll(at_ms);
        self.fine.add(observation);
        self.coarse.add(observation);
        self.gauges.add(change);
        self.effects += 1;
        self.last_effect_ms = at_ms;
    }

    fn add_ready_type(&mut self, job_type: &JobType) {
        if self.ready_types.len() < TYPES_MAX && !self.ready_types.contains(job_type) {
            self.ready_types.insert(job_type.clone());
        }
    }

    /// Corrects the numbers of jobs by a reading of the store. Effects since its start may be in
    /// the reading or not, so that a difference of that many jobs is none.
    fn correct(&mut self, now_ms: i64, read: Gauges) {
        let moved = self.effects - self.effects_before_reading;
        let differs = |own: i64, read: i64| own.abs_diff(read) > moved;
        let Gauges { depth, ready, slots, dead_letters } = self.gauges;
        if differs(depth, read.depth)
            || differs(ready, read.ready)
            || differs(slots, read.slots)
            || differs(dead_letters, read.dead_letters)
        {
            self.roll(now_ms);
            self.gauges = read;
        }
    }

    fn sum_into(&self, spec: SeriesSpec, window: Window, groups: &mut [Group]) {
        let is_fine = spec.step_ms % COARSE_MS != 0;
        let track = if is_fine { &self.fine } else { &self.coarse };
        track.sum_into(window, self.gauges, groups);
    }
}

impl SeriesSpec {
    /// Returns the intervals up to now, the first not before `since_ms`.
    fn window(self, now_ms: i64, since_ms: i64) -> Window {
        let Self { window_ms, step_ms } = self;
        let last = now_ms.div_euclid(step_ms);
        let earliest = last - (window_ms + step_ms - 1).div_euclid(step_ms) + 1;
        let first = earliest.max(since_ms.div_euclid(step_ms)).min(last);
        Window { first, count: usize::try_from(last - first + 1).unwrap_or(0), step_ms }
    }

    /// Whether a window and a step are kept in memory.
    pub(crate) fn is_kept(self) -> bool {
        let Self { window_ms, step_ms } = self;
        let unit = if window_ms <= FINE_WINDOW_MS { FINE_MS } else { COARSE_MS };
        step_ms > 0 && step_ms % unit == 0 && step_ms <= window_ms && window_ms <= COARSE_WINDOW_MS
    }
}

fn to_points(window: Window, groups: Vec<Group>) -> Vec<SeriesPoint> {
    let jobs = |gauge: i64| u64::try_from(gauge).unwrap_or(0);
    let point = |(number, group): (i64, Group)| SeriesPoint {
        at: time(Timestamp::from_millis((window.first + number) * window.step_ms)),
        submitted: group.submitted,
        completed: group.completed,
        failed: group.failed,
        depth: jobs(group.gauges.depth),
        ready: jobs(group.gauges.ready),
        slots: jobs(group.gauges.slots),
        dead_letters: jobs(group.gauges.dead_letters),
        wait: group.wait.quantiles(),
        run: group.run.quantiles(),
    };
    (0..).zip(groups).map(point).collect()
}

impl SeriesStore {
    pub(crate) fn new(now: Timestamp) -> Self {
        let total = Series::new(now.as_millis(), Gauges::default());
        let last_drop = i64::MIN;
        let (queues, types) = (HashMap::new(), TypeSeries::default());
        Self(Mutex::new(AllSeries { since: now, total, queues, types, waiting: None, last_drop }))
    }

    /// Begins the series with the jobs of the store, before the first effect.
    pub(crate) fn start(&self, now: Timestamp, reports: &[QueueStats]) {
        let mut all = self.0.lock();
        let now_ms = now.as_millis();
        let mut sum = Gauges::default();
        for report in reports {
            let gauges = Gauges::of_counts(&report.counts);
            sum.add(gauges);
            if all.queues.len() < QUEUES_MAX {
                all.queues.insert(report.queue.name.clone(), Series::new(now_ms, gauges));
            }
        }
        (all.since, all.total) = (now, Series::new(now_ms, sum));
    }

    /// Counts the effects of one commit.
    pub(crate) fn count(&self, effects: &[Effect]) {
        let mut all = self.0.lock();
        for effect in effects {
            let Some((queue, at, observation, change)) = observe(effect) else { continue };
            let at_ms = at.as_millis();
            let ready_type = effect.transition().filter(|(_, step)| step.to == StateKind::Scheduled);
            all.total.add(at_ms, &observation, change);
            if let Some((job_type, _)) = effect.transition() {
                all.types.add(queue, job_type, at_ms, &observation);
            }
            if let Some(series) = all.queues.get_mut(queue) {
                series.add(at_ms, &observation, change);
                ready_type.iter().for_each(|(job_type, _)| series.add_ready_type(job_type));
            } else if all.queues.len() < QUEUES_MAX {
                let mut series = Series::new(at_ms, Gauges::default());
                series.since_ms = series.since_ms.min(all.since.as_millis());
                series.add(at_ms, &observation, change);
                ready_type.iter().for_each(|(job_type, _)| series.add_ready_type(job_type));
                all.queues.insert(queue.clone(), series);
            } else if all.waiting.is_none() {
                all.waiting = Some(queue.clone());
            }
        }
        if let Some(at) = effects.iter().find_map(|effect| effect.transition().map(|(_, step)| step.at)) {
            all.drop_points(at.as_millis());
        }
    }

    /// Remembers that a queue has a ready job of this type.
    pub(crate) fn add_ready_type(&self, queue: &QueueName, job_type: &JobType) {
        if let Some(series) = self.0.lock().queues.get_mut(queue) {
            series.add_ready_type(job_type);
        }
    }

    /// Forgets a type of which a queue has no ready job.
    pub(crate) fn remove_ready_type(&self, queue: &QueueName, job_type: &JobType) {
        if let Some(series) = self.0.lock().queues.get_mut(queue) {
            series.ready_types.remove(job_type);
        }
    }

    /// Returns the types of which a queue may have ready jobs.
    pub(crate) fn ready_types(&self, queue: &QueueName) -> Vec<JobType> {
        self.0.lock().queues.get(queue).map_or_else(Vec::new, |series| series.ready_types.iter().cloned().collect())
    }

    /// Notes that a reading of the store begins.
    fn begin_reading(&self) {
        let mut all = self.0.lock();
        all.total.effects_before_reading = all.total.effects;
        all.queues.values_mut().for_each(|series| series.effects_before_reading = series.effects);
    }

    /// Corrects the numbers of jobs, and forgets deleted queues.
    fn end_reading(&self, now: Timestamp, reports: &[QueueStats]) {
        let mut all = self.0.lock();
        let now_ms = now.as_millis();
        let mut sum = Gauges::default();
        let mut read: HashMap<&QueueName, Gauges> = HashMap::with_capacity(reports.len());
        for report in reports {
            let gauges = Gauges::of_counts(&report.counts);
            sum.add(gauges);
            read.insert(&report.queue.name, gauges);
        }
        all.total.correct(now_ms, sum);
        all.queues.retain(|name, series| match read.remove(name) {
            Some(gauges) => {
                series.correct(now_ms, gauges);
                true
            }
            None => series.effects > series.effects_before_reading,
        });
        if let Some(waiting) = all.waiting.take()
            && all.queues.len() >= QUEUES_MAX
            && let Some(gauges) = read.get(&waiting)
        {
            all.replace_idle(waiting, Series::new(now_ms, *gauges));
        }
        for (name, gauges) in read {
            if all.queues.len() >= QUEUES_MAX {
                break;
            }
            all.queues.entry(name.clone()).or_insert_with(|| Series::new(now_ms, gauges));
        }
    }

    /// Returns the series of some queues, and their totals. Without `names` the totals are those of
    /// all queues. Series of queues that would exceed the size of an answer are empty.
    pub(crate) fn read(
        &self,
        now: Timestamp,
        spec: SeriesSpec,
        names: &[&QueueName],
        totals_of: Option<&[&QueueName]>,
    ) -> SeriesAnswer {
        let (now_ms, since) = (now.as_millis(), self.0.lock().since);
        let window = spec.window(now_ms, since.as_millis());
        let mut groups = vec![Group::default(); window.count];
        match totals_of {
            None => self.0.lock().total.sum_into(spec, window, &mut groups),
            // One lock per queue: a long answer must not delay the effects of commits.
            Some(names) => names.iter().for_each(|name| {
                if let Some(series) = self.0.lock().queues.get(*name) {
                    series.sum_into(spec, window, &mut groups);
                }
            }),
        }
        let totals = to_points(window, groups);
        let mut busiest: Vec<&QueueName> = names.to_vec();
        let queues_max = (ANSWER_POINTS_MAX / window.count.max(1)).max(1);
        if busiest.len() > queues_max {
            let all = self.0.lock();
            busiest.sort_by_cached_key(|name| all.queues.get(*name).map(|series| std::cmp::Reverse(series.effects)));
            busiest.sort_by_key(|name| !all.queues.contains_key(*name));
            busiest.truncate(queues_max);
        }
        let mut queues = HashMap::with_capacity(busiest.len());
        for name in busiest {
            if let Some(series) = self.0.lock().queues.get(name) {
                let window = spec.window(now_ms, series.since_ms);
                let mut groups = vec![Group::default(); window.count];
                series.sum_into(spec, window, &mut groups);
                queues.insert(name.clone(), to_points(window, groups));
            }
        }
        SeriesAnswer { since, totals, queues }
    }

    /// Returns the sums of each type of the queues that `admits` accepts.
    pub(crate) fn types(&self, now: Timestamp, window_ms: i64, admits: impl Fn(&QueueName) -> bool) -> TypeAnswer {
        let all = self.0.lock();
        TypeAnswer { since: all.since, types: all.types.sums(now.as_millis() - window_ms, admits) }
    }

    /// Returns the points of one type in the queues that `admits` accepts.
    pub(crate) fn points_of_type(
        &self,
        now: Timestamp,
        spec: SeriesSpec,
        job_type: &JobType,
        admits: impl Fn(&QueueName) -> bool,
    ) -> Vec<JobTypePoint> {
        let all = self.0.lock();
        let window = spec.window(now.as_millis(), all.since.as_millis());
        let mut groups = vec![Group::default(); window.count];
        all.types.sum_into(job_type, window, admits, &mut groups);
        types::to_points(window, groups)
    }

    /// Returns what happened in a queue lately: failures within one window, dead letters within
    /// another one. `None`: it had no event in either.
    pub(crate) fn recent(
        &self,
        now: Timestamp,
        queue: &QueueName,
        failures_ms: i64,
        growth_ms: i64,
    ) -> Option<RecentEvents> {
        let all = self.0.lock();
        let series = all.queues.get(queue)?;
        let now_ms = now.as_millis();
        let longest = failures_ms.max(growth_ms);
        if now_ms - series.last_effect_ms > longest + COARSE_MS {
            return None;
        }
        let spec = SeriesSpec { window_ms: longest, step_ms: COARSE_MS };
        let window = spec.window(now_ms, series.since_ms);
        let mut groups = vec![Group::default(); window.count];
        series.sum_into(spec, window, &mut groups);
        let start_of = |number: i64| (window.first + number) * COARSE_MS;
        let mut recent = RecentEvents::default();
        let base = groups.first().map_or(0, |_| series.coarse.gauges_before(start_of(0), series.gauges).dead_letters);
        recent.dead_letters_before = u64::try_from(base).unwrap_or(0);
        for (number, group) in (0..).zip(&groups) {
            let start_ms = start_of(number);
            let start = Timestamp::from_millis(start_ms.max(series.since_ms));
            if start_ms + COARSE_MS > now_ms - failures_ms {
                recent.failed += group.failed;
                recent.completed += group.completed;
                if group.failed > 0 {
                    recent.failing_since.get_or_insert(start);
                }
            }
            if group.gauges.dead_letters > base {
                recent.growing_since.get_or_insert(start);
            }
        }
        Some(recent)
    }
}

impl AllSeries {
    /// Replaces the queue without events for longest, if that is long enough.
    fn replace_idle(&mut self, name: QueueName, series: Series) {
        let idlest = self.queues.iter().min_by_key(|(_, series)| series.last_effect_ms);
        let is_idle = |last_effect_ms: i64| series.since_ms - last_effect_ms > IDLE_MS;
        let idlest = idlest.filter(|(_, other)| is_idle(other.last_effect_ms)).map(|(name, _)| name.clone());
        if let Some(idlest) = idlest {
            self.queues.remove(&idlest);
            self.queues.insert(name, series);
        }
    }

    /// Keeps the bound of memory, once per coarse interval.
    fn drop_points(&mut self, now_ms: i64) {
        let interval = now_ms.div_euclid(COARSE_MS);
        if interval == self.last_drop {
            return;
        }
        self.last_drop = interval;
        self.types.drop_points(now_ms);
        let bytes = |series: &Series| series.fine.bytes() + series.coarse.bytes();
        let mut used: usize = self.queues.values().map(bytes).sum();
        while used > POINT_BYTES_MAX {
            let oldest = self.queues.values().filter_map(|series| series.coarse.first_point_ms()).min();
            let Some(oldest) = oldest else { break };
            // An hour at a time, so that this is rare.
            let limit = oldest + 3_600_000;
            for series in self.queues.values_mut() {
                used -= series.coarse.bytes();
                series.coarse.drop_before_ms(limit);
                series.since_ms = series.since_ms.max(limit.min(now_ms));
                used += series.coarse.bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests;
