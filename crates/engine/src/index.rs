//! The index: ready jobs, timers and counts per state. It is derived from the records.

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

/// The kinds of timers, in the order in which they fire at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerKind {
    Lifetime,
    Deadline,
    LeaseExpiry,
    Promotion,
}

pub(crate) type Timer = (Timestamp, TimerKind, Seq);

/// The indexed fields of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    seq: Seq,
    queue: QueueName,
    job_type: JobType,
    priority: Priority,
    state: StateKind,
    held: bool,
    slot: ReadySlot,
    /// When a scheduled job became ready.
    scheduled_at: Option<Timestamp>,
    timer: Option<(Timestamp, TimerKind)>,
    lifetime: Option<Timestamp>,
}

/// The position at which a claim may find a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadySlot {
    None,
    Ready(u64),
    /// Running, and ready at this position once a tick finds that its lease has expired.
    ReclaimOnExpiry(u64),
}

impl IndexEntry {
    pub(crate) fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// Returns the timer of the state; the timer of the lifetime is separate.
    pub(crate) fn timer(&self) -> Option<Timer> {
        self.timer.map(|(at, kind)| (at, kind, self.seq))
    }

    /// Returns the position in the queue, now or after the lease has expired.
    pub(crate) fn position(&self) -> Option<u64> {
        match self.slot {
            ReadySlot::None => None,
            ReadySlot::Ready(position) | ReadySlot::ReclaimOnExpiry(position) => Some(position),
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
            slot: ReadySlot::None,
            scheduled_at: None,
            timer: None,
            lifetime: job.lifetime_ends_at.filter(|_| !job.state.terminal()),
        };
        match job.state {
            State::Pending { held, .. } => entry.held = *held,
            State::Scheduled { position } => {
                entry.slot = ReadySlot::Ready(*position);
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
                let is_reclaimed = match job.policy.on_lease_expiry {
                    OnLeaseExpiry::ReclaimCounted | OnLeaseExpiry::ReclaimFree => true,
                    OnLeaseExpiry::FailTimeout | OnLeaseExpiry::FailRetryable => false,
                };
                if is_reclaimed && job.policy.reclaim == Reclaim::Lazy {
                    entry.slot = ReadySlot::ReclaimOnExpiry(lease.position);
                }
            }
            State::Completed { .. } | State::Failed { .. } | State::DeadLetter { .. } | State::Cancelled { .. } => {}
        }
        entry
    }
}

/// The index keys of a record, for stores that keep the index themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyKey {
    /// The position in its queue, if the job can be claimed.
    pub place: Option<u64>,
    /// The earliest of its timers.
    pub timer: Option<(Timestamp, TimerKind)>,
}

/// Returns the index keys of a job.
/// `is_reclaimable`: the job is running, and a tick has found that its lease has expired.
pub fn ordering(job: &Job, is_reclaimable: bool) -> ReadyKey {
    let entry = IndexEntry::of(job);
    let lifetime = entry.lifetime.map(|at| (at, TimerKind::Lifetime));
    let (position, timer) = match entry.slot {
        ReadySlot::Ready(position) => (Some(position), entry.timer),
        // The timer of the lease has fired.
        ReadySlot::ReclaimOnExpiry(position) if is_reclaimable => (Some(position), None),
        ReadySlot::ReclaimOnExpiry(_) | ReadySlot::None => (None, entry.timer),
    };
    ReadyKey { place: position, timer: timer.into_iter().chain(lifetime).min() }
}

/// The number of jobs of one queue in each state.
pub type StateCounts = [u64; StateKind::COUNT];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    queues: HashMap<QueueName, QueueIndex>,
    timers: BTreeSet<Timer>,
}

/// The index of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct QueueIndex {
    levels: [PriorityLevel; Priority::COUNT],
    counts: StateCounts,
    held: u64,
    /// How many of the scheduled jobs became ready at each instant.
    enqueued_at_counts: BTreeMap<Timestamp, u64>,
}

/// The ready jobs of one priority: a list per type, and the heads of those lists in order.
/// With the heads, a claim for some types does not scan the jobs of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PriorityLevel {
    by_type: HashMap<JobType, BlockList>,
    heads: BTreeMap<u64, JobType>,
}

impl Index {
    /// Replaces the entry of a record; `None` means that there is no record.
    pub(crate) fn replace(&mut self, before: Option<&IndexEntry>, after: Option<&IndexEntry>) {
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

    /// Counts jobs in a terminal state that have no entry.
    pub(crate) fn add_ended(&mut self, queue: &QueueName, state: StateKind, jobs: u64) {
        *self.queue_index(queue).count(state) += jobs;
    }

    pub(crate) fn add_counts(&mut self, queue: &QueueName, counts: &StateCounts, held: u64) {
        let queue = self.queue_index(queue);
        queue.held += held;
        for (count, more) in queue.counts.iter_mut().zip(counts) {
            *count += more;
        }
    }

    fn queue_index(&mut self, queue: &QueueName) -> &mut QueueIndex {
        self.queues.entry(queue.clone()).or_default()
    }

    fn insert(&mut self, entry: &IndexEntry) {
        // The hot path: one lookup and no clone of the name if the queue has an index.
        let queue = match self.queues.get_mut(&entry.queue) {
            Some(queue) => queue,
            None => self.queues.entry(entry.queue.clone()).or_default(),
        };
        *queue.count(entry.state) += 1;
        queue.held += u64::from(entry.held);
        if let Some(at) = entry.scheduled_at {
            *queue.enqueued_at_counts.entry(at).or_default() += 1;
        }
        if let ReadySlot::Ready(position) = entry.slot {
            queue.level(entry.priority).insert(&entry.job_type, position, entry.seq);
        }
        self.timers.extend(entry.timer.map(|(at, kind)| (at, kind, entry.seq)));
        self.timers.extend(entry.lifetime.map(|at| (at, TimerKind::Lifetime, entry.seq)));
    }

    fn remove(&mut self, entry: &IndexEntry) {
        if let Some(queue) = self.queues.get_mut(&entry.queue) {
            queue.remove(entry);
            if queue.counts == [0; StateKind::COUNT] {
                self.queues.remove(&entry.queue);
            }
        }
        if let Some((at, kind)) = entry.timer {
            self.timers.remove(&(at, kind, entry.seq));
        }
        if let Some(at) = entry.lifetime {
            self.timers.remove(&(at, TimerKind::Lifetime, entry.seq));
        }
    }

    /// Makes a running job with an expired lease ready for the next claim.
    pub(crate) fn mark_reclaimable(&mut self, entry: &IndexEntry) {
        if let ReadySlot::ReclaimOnExpiry(position) = entry.slot {
            self.queue_index(&entry.queue).level(entry.priority).insert(&entry.job_type, position, entry.seq);
        }
    }

    /// Returns whether the next claim may take over this running job.
    pub(crate) fn is_reclaimable(&self, entry: &IndexEntry) -> bool {
        match entry.slot {
            ReadySlot::ReclaimOnExpiry(position) => self.is_ready_at(entry, position),
            ReadySlot::None | ReadySlot::Ready(_) => false,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "as many levels as priorities")]
    fn is_ready_at(&self, entry: &IndexEntry, position: u64) -> bool {
        let level = self.queues.get(&entry.queue).map(|queue| &queue.levels[entry.priority as usize]);
        level.and_then(|level| level.by_type.get(&entry.job_type)?.get(position)) == Some(entry.seq)
    }

    /// Returns the next ready job of these types (empty: all types).
    pub(crate) fn next_ready(&self, queue: &QueueName, types: &[JobType], priority_order: bool) -> Option<Seq> {
        let levels = &self.queues.get(queue)?.levels;
        let mut firsts = levels.iter().filter_map(|level| level.first(types));
        let first = if priority_order { firsts.next() } else { firsts.min() };
        first.map(|(_, seq)| seq)
    }

    pub(crate) fn oldest_scheduled_at(&self, queue: &QueueName) -> Option<Timestamp> {
        self.queues.get(queue)?.enqueued_at_counts.first_key_value().map(|(at, _)| *at)
    }

    /// Removes a timer. Returns whether it existed.
    pub(crate) fn drop_timer(&mut self, timer: Timer) -> bool {
        self.timers.remove(&timer)
    }

    pub(crate) fn restore_timer(&mut self, timer: Timer) {
        self.timers.insert(timer);
    }

    /// Reverts [`Self::mark_reclaimable`].
    pub(crate) fn unmark_reclaimable(&mut self, entry: &IndexEntry) {
        if let ReadySlot::ReclaimOnExpiry(position) = entry.slot {
            self.queue_index(&entry.queue).level(entry.priority).remove(&entry.job_type, position, entry.seq);
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Timer> {
        self.timers.first().copied()
    }

    /// Returns the running jobs whose leases end after this instant.
    pub(crate) fn leases_after(&self, instant: Timestamp) -> Vec<Seq> {
        let running = StateKind::Running as usize;
        if self.queues.values().all(|queue| queue.counts.get(running) == Some(&0)) {
            return Vec::new();
        }
        let ends = self
            .timers
            .iter()
            .filter(|(at, kind, _)| *at > instant && matches!(kind, TimerKind::Deadline | TimerKind::LeaseExpiry));
        ends.map(|(.., seq)| *seq).collect()
    }

    pub(crate) fn counts(&self, queue: &QueueName) -> StateCounts {
        self.queues.get(queue).map_or([0; StateKind::COUNT], |queue| queue.counts)
    }

    /// Returns the number of waiting jobs that are not held: what `max_queued` limits.
    pub(crate) fn queued_count(&self, queue: &QueueName) -> u64 {
        let Some(queue) = self.queues.get(queue) else { return 0 };
        let waiting = StateKind::ALL.iter().filter(|state| state.is_waiting());
        let sum: u64 = waiting.map(|state| count_of(&queue.counts, *state)).sum();
        sum.saturating_sub(queue.held)
    }

    /// Returns the number of jobs in other than terminal states.
    pub(crate) fn unfinished_count(&self, queue: &QueueName) -> u64 {
        let counts = self.counts(queue);
        StateKind::ALL.iter().filter(|state| !state.terminal()).map(|state| count_of(&counts, *state)).sum()
    }
}

/// Returns the count of one state.
pub fn count_of(counts: &StateCounts, state: StateKind) -> u64 {
    counts.get(state as usize).copied().unwrap_or(0)
}

impl QueueIndex {
    fn remove(&mut self, entry: &IndexEntry) {
        let count = self.count(entry.state);
        *count = count.saturating_sub(1);
        self.held = self.held.saturating_sub(u64::from(entry.held));
        if let Some(at) = entry.scheduled_at {
            self.remove_enqueued_at(at);
        }
        match entry.slot {
            ReadySlot::Ready(position) | ReadySlot::ReclaimOnExpiry(position) => {
                self.level(entry.priority).remove(&entry.job_type, position, entry.seq);
            }
            ReadySlot::None => {}
        }
    }

    fn remove_enqueued_at(&mut self, at: Timestamp) {
        if let Some(count) = self.enqueued_at_counts.get_mut(&at) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.enqueued_at_counts.remove(&at);
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
        let list = match self.by_type.get_mut(job_type) {
            Some(list) => list,
            None => self.by_type.entry(job_type.clone()).or_default(),
        };
        let head = list.first().map(|(head, _)| head);
        list.insert(position, seq);
        if head.is_none_or(|head| position < head) {
            if let Some(head) = head {
                self.heads.remove(&head);
            }
            self.heads.insert(position, job_type.clone());
        }
    }

    /// Does nothing if the position is empty or another job's.
    fn remove(&mut self, job_type: &JobType, position: u64, seq: Seq) {
        let Some(list) = self.by_type.get_mut(job_type) else { return };
        if list.get(position) != Some(seq) {
            return;
        }
        let was_head = list.first().is_some_and(|(head, _)| head == position);
        list.remove(position);
        let head = list.first().map(|(head, _)| head);
        if list.is_empty() {
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
