//! The order of jobs: who is in line, whose time comes when, how many are where. All of it follows from the records.

mod block_list;
mod bulk_load;
mod peek;

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;

use self::block_list::BlockList;
use longshore_core::id::{JobType, QueueName, Seq};
use longshore_core::job::{IndexedFields, Job};
use longshore_core::lease::LeaseEnd;
use longshore_core::policy::{OnLeaseExpiry, Reclaim};
use longshore_core::priority::Priority;
use longshore_core::state::{State, StateKind};
use longshore_core::time::Timestamp;

/// What comes due; at one instant in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerKind {
    Lifetime,
    Deadline,
    LeaseExpiry,
    Promotion,
}

pub(crate) type Timer = (Timestamp, TimerKind, Seq);

/// What the index has to know of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    seq: Seq,
    queue: QueueName,
    job_type: JobType,
    priority: Priority,
    state: StateKind,
    held: bool,
    place: ReadySlot,
    /// Of a scheduled job.
    scheduled_at: Option<Timestamp>,
    timer: Option<(Timestamp, TimerKind)>,
    lifetime: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadySlot {
    None,
    InLine(u64),
    /// Running, and back in line at this place once its lease has expired: only the clock knows which.
    Lazy(u64),
}

impl Entry {
    pub(crate) fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The timer that is not its lifetime's.
    pub(crate) fn timer(&self) -> Option<Timer> {
        self.timer.map(|(at, kind)| (at, kind, self.seq))
    }

    /// Its place in line, now or after the end of its lease.
    pub(crate) fn position(&self) -> Option<u64> {
        match self.place {
            ReadySlot::None => None,
            ReadySlot::InLine(position) | ReadySlot::Lazy(position) => Some(position),
        }
    }

    pub(crate) fn of(job: &Job) -> Self {
        Self::from_fields(&job.outline())
    }

    pub(crate) fn from_fields(job: &IndexedFields<'_>) -> Self {
        let mut entry = Self {
            seq: job.seq,
            queue: job.queue.clone(),
            job_type: job.job_type.clone(),
            priority: job.effective_priority,
            state: job.state.kind(),
            held: false,
            place: ReadySlot::None,
            scheduled_at: None,
            timer: None,
            lifetime: job.lifetime_ends_at.filter(|_| !job.state.terminal()),
        };
        match job.state {
            State::Pending { held, .. } => entry.held = *held,
            State::Scheduled { position } => {
                entry.place = ReadySlot::InLine(*position);
                entry.scheduled_at = job.scheduled_at;
            }
            State::Delayed { until } | State::Retrying { until } => {
                entry.timer = Some((*until, TimerKind::Promotion));
            }
            State::Running(lease) => {
                entry.timer = match lease.next_expiry() {
                    LeaseEnd::Deadline(at) => Some((at, TimerKind::Deadline)),
                    LeaseEnd::Expiry(at) => Some((at, TimerKind::LeaseExpiry)),
                    LeaseEnd::Never => None,
                };
                let reclaimed = match job.policy.on_lease_expiry {
                    OnLeaseExpiry::ReclaimCounted | OnLeaseExpiry::ReclaimFree => true,
                    OnLeaseExpiry::FailTimeout | OnLeaseExpiry::FailRetryable => false,
                };
                if reclaimed && job.policy.reclaim == Reclaim::Lazy {
                    entry.place = ReadySlot::Lazy(lease.position);
                }
            }
            State::Completed { .. } | State::Failed { .. } | State::DeadLetter { .. } | State::Cancelled { .. } => {}
        }
        entry
    }
}

/// Where a record stands, for stores that keep the order themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyKey {
    /// Its place in line, of a job that may be claimed.
    pub place: Option<u64>,
    /// The first of its timers.
    pub timer: Option<(Timestamp, TimerKind)>,
}

/// Where a job stands. `offered`: it runs, its lease has expired, and the next claim may take it over.
pub fn ordering(job: &Job, offered: bool) -> ReadyKey {
    let entry = Entry::of(job);
    let lifetime = entry.lifetime.map(|at| (at, TimerKind::Lifetime));
    let (place, timer) = match entry.place {
        ReadySlot::InLine(position) => (Some(position), entry.timer),
        // Its timer has nothing more to say.
        ReadySlot::Lazy(position) if offered => (Some(position), None),
        ReadySlot::Lazy(_) | ReadySlot::None => (None, entry.timer),
    };
    ReadyKey { place, timer: timer.into_iter().chain(lifetime).min() }
}

/// Counts of one queue, per state.
pub type StateCounts = [u64; StateKind::COUNT];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    lines: HashMap<QueueName, QueueIndex>,
    timers: BTreeSet<Timer>,
}

/// One queue: five levels of urgency, and the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct QueueIndex {
    levels: [PriorityLevel; Priority::COUNT],
    counts: StateCounts,
    held: u64,
    /// How many came into the line at which instant and are still there.
    enqueued_at_counts: BTreeMap<Timestamp, u64>,
}

/// Jobs of one urgency: a line for each type, and the heads of those lines in order, so that a claim may ask for any
/// types without passing over the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PriorityLevel {
    by_type: HashMap<JobType, BlockList>,
    heads: BTreeMap<u64, JobType>,
}

impl Index {
    /// Files a record anew after a change; `None` is "not there".
    pub(crate) fn replace(&mut self, before: Option<&Entry>, after: Option<&Entry>) {
        if before == after {
            return;
        }
        if let Some(entry) = before {
            self.remove(entry);
        }
        if let Some(entry) = after {
            self.insert(entry);
        }
    }

    /// Jobs in a terminal state that no record in memory stands for.
    pub(crate) fn add_ended(&mut self, queue: &QueueName, state: StateKind, jobs: u64) {
        *self.line(queue).count(state) += jobs;
    }

    pub(crate) fn add_counts(&mut self, queue: &QueueName, counts: &StateCounts, held: u64) {
        let line = self.line(queue);
        line.held += held;
        for (known, more) in line.counts.iter_mut().zip(counts) {
            *known += more;
        }
    }

    fn line(&mut self, queue: &QueueName) -> &mut QueueIndex {
        if !self.lines.contains_key(queue) {
            self.lines.insert(queue.clone(), QueueIndex::default());
        }
        self.lines.entry(queue.clone()).or_default()
    }

    fn insert(&mut self, entry: &Entry) {
        // The way every change takes: one look-up where the queue is known.
        let line = match self.lines.get_mut(&entry.queue) {
            Some(line) => line,
            None => self.lines.entry(entry.queue.clone()).or_default(),
        };
        *line.count(entry.state) += 1;
        line.held += u64::from(entry.held);
        if let Some(at) = entry.scheduled_at {
            *line.enqueued_at_counts.entry(at).or_default() += 1;
        }
        if let ReadySlot::InLine(position) = entry.place {
            line.level(entry.priority).insert(&entry.job_type, position, entry.seq);
        }
        self.timers.extend(entry.timer.map(|(at, kind)| (at, kind, entry.seq)));
        self.timers.extend(entry.lifetime.map(|at| (at, TimerKind::Lifetime, entry.seq)));
    }

    fn remove(&mut self, entry: &Entry) {
        if let Some(line) = self.lines.get_mut(&entry.queue) {
            line.remove(entry);
            if line.counts == [0; StateKind::COUNT] {
                self.lines.remove(&entry.queue);
            }
        }
        if let Some((at, kind)) = entry.timer {
            self.timers.remove(&(at, kind, entry.seq));
        }
        if let Some(at) = entry.lifetime {
            self.timers.remove(&(at, TimerKind::Lifetime, entry.seq));
        }
    }

    /// The lease of a lazily reclaimed job has expired: the next claim may have it.
    pub(crate) fn mark_reclaimable(&mut self, entry: &Entry) {
        if let ReadySlot::Lazy(position) = entry.place {
            self.line(&entry.queue).level(entry.priority).insert(&entry.job_type, position, entry.seq);
        }
    }

    /// Whether a running job stands in line for the next claim.
    pub(crate) fn offers(&self, entry: &Entry) -> bool {
        match entry.place {
            ReadySlot::Lazy(position) => self.is_ready_at(entry, position),
            ReadySlot::None | ReadySlot::InLine(_) => false,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "as many levels as priorities")]
    fn is_ready_at(&self, entry: &Entry, position: u64) -> bool {
        let line = self.lines.get(&entry.queue).map(|line| &line.levels[entry.priority as usize]);
        line.and_then(|level| level.by_type.get(&entry.job_type)?.get(position)) == Some(entry.seq)
    }

    /// Who is next in line, of these types (none named: of any).
    pub(crate) fn next_ready(&self, queue: &QueueName, types: &[JobType], priority_order: bool) -> Option<Seq> {
        let levels = &self.lines.get(queue)?.levels;
        let mut firsts = levels.iter().filter_map(|level| level.first(types));
        let first = if priority_order { firsts.next() } else { firsts.min() };
        first.map(|(_, seq)| seq)
    }

    pub(crate) fn oldest_scheduled_at(&self, queue: &QueueName) -> Option<Timestamp> {
        self.lines.get(queue)?.enqueued_at_counts.first_key_value().map(|(at, _)| *at)
    }

    /// Says whether it was still there.
    pub(crate) fn drop_timer(&mut self, timer: Timer) -> bool {
        self.timers.remove(&timer)
    }

    pub(crate) fn restore_timer(&mut self, timer: Timer) {
        self.timers.insert(timer);
    }

    /// Takes an offer back.
    pub(crate) fn unmark_reclaimable(&mut self, entry: &Entry) {
        if let ReadySlot::Lazy(position) = entry.place {
            self.line(&entry.queue).level(entry.priority).remove(&entry.job_type, position, entry.seq);
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Timer> {
        self.timers.first().copied()
    }

    /// Running jobs whose lease ends after this instant.
    pub(crate) fn leases_after(&self, instant: Timestamp) -> Vec<Seq> {
        let running = StateKind::Running as usize;
        if self.lines.values().all(|line| line.counts.get(running) == Some(&0)) {
            return Vec::new();
        }
        let ends = self
            .timers
            .iter()
            .filter(|(at, kind, _)| *at > instant && matches!(kind, TimerKind::Deadline | TimerKind::LeaseExpiry));
        ends.map(|(.., seq)| *seq).collect()
    }

    pub(crate) fn counts(&self, queue: &QueueName) -> StateCounts {
        self.lines.get(queue).map_or([0; StateKind::COUNT], |line| line.counts)
    }

    /// Jobs that wait in the queue: pending ones that are not held, scheduled, delayed and retrying ones.
    pub(crate) fn queued_count(&self, queue: &QueueName) -> u64 {
        let Some(line) = self.lines.get(queue) else { return 0 };
        let waiting = [StateKind::Pending, StateKind::Scheduled, StateKind::Delayed, StateKind::Retrying];
        let sum: u64 = waiting.into_iter().map(|state| count_of(&line.counts, state)).sum();
        sum.saturating_sub(line.held)
    }

    /// Jobs that have not ended.
    pub(crate) fn unfinished_count(&self, queue: &QueueName) -> u64 {
        let counts = self.counts(queue);
        StateKind::ALL.iter().filter(|state| !state.terminal()).map(|state| count_of(&counts, *state)).sum()
    }
}

pub fn count_of(counts: &StateCounts, state: StateKind) -> u64 {
    counts.get(state as usize).copied().unwrap_or(0)
}

impl QueueIndex {
    fn remove(&mut self, entry: &Entry) {
        let count = self.count(entry.state);
        *count = count.saturating_sub(1);
        self.held = self.held.saturating_sub(u64::from(entry.held));
        if let Some(at) = entry.scheduled_at {
            self.remove_enqueued_at(at);
        }
        match entry.place {
            ReadySlot::InLine(position) | ReadySlot::Lazy(position) => {
                self.level(entry.priority).remove(&entry.job_type, position, entry.seq);
            }
            ReadySlot::None => {}
        }
    }

    fn remove_enqueued_at(&mut self, came: Timestamp) {
        if let Some(number) = self.enqueued_at_counts.get_mut(&came) {
            *number = number.saturating_sub(1);
            if *number == 0 {
                self.enqueued_at_counts.remove(&came);
            }
        }
    }

    #[expect(clippy::indexing_slicing, reason = "as many levels as priorities")]
    fn level(&mut self, priority: Priority) -> &mut PriorityLevel {
        &mut self.levels[priority as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "as many counts as states")]
    fn count(&mut self, state: StateKind) -> &mut u64 {
        &mut self.counts[state as usize]
    }
}

impl PriorityLevel {
    fn insert(&mut self, job_type: &JobType, position: u64, seq: Seq) {
        let line = match self.by_type.get_mut(job_type) {
            Some(line) => line,
            None => self.by_type.entry(job_type.clone()).or_default(),
        };
        let head = line.first().map(|(head, _)| head);
        line.insert(position, seq);
        if head.is_none_or(|head| position < head) {
            if let Some(head) = head {
                self.heads.remove(&head);
            }
            self.heads.insert(position, job_type.clone());
        }
    }

    /// Does nothing if another job, or none, stands there.
    fn remove(&mut self, job_type: &JobType, position: u64, seq: Seq) {
        let Some(line) = self.by_type.get_mut(job_type) else { return };
        if line.get(position) != Some(seq) {
            return;
        }
        let was_head = line.first().is_some_and(|(head, _)| head == position);
        line.remove(position);
        let head = line.first().map(|(head, _)| head);
        if line.is_empty() {
            self.by_type.remove(job_type);
        }
        if was_head {
            self.heads.remove(&position);
            self.heads.extend(head.map(|head| (head, job_type.clone())));
        }
    }

    fn first(&self, types: &[JobType]) -> Option<(u64, Seq)> {
        let head = |job_type: &JobType| self.by_type.get(job_type)?.first();
        if types.is_empty() {
            return self.heads.first_key_value().and_then(|(_, job_type)| head(job_type));
        }
        types.iter().filter_map(head).min()
    }
}
