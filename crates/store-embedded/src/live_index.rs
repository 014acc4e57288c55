//! Index of live jobs: compressed sets of sequence numbers by queue, state, type and priority.

use std::hash::Hash;
use std::ops::RangeInclusive;

use foldhash::HashMap;
use longshore_core::id::{JobType, QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::priority::Priority;
use longshore_core::state::{State, StateKind};
use longshore_store::{JobFilter, QueuePosition};
use roaring::RoaringTreemap;

use longshore_codec::job::RecordHeader;

/// Fields of a job that listings filter by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveEntry {
    seq: Seq,
    queue: QueueName,
    state: StateKind,
    job_type: JobType,
    priority: Priority,
    /// Position in the queue, if it differs from the sequence number.
    position: Option<u64>,
}

/// Position that a job got when it (re)entered its queue.
fn position_of(seq: Seq, state: &State) -> Option<u64> {
    match state {
        State::Scheduled { position } => Some(*position).filter(|position| *position != seq.0),
        State::Pending { .. }
        | State::Delayed { .. }
        | State::Running(_)
        | State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => None,
    }
}

impl LiveEntry {
    pub(crate) fn has_type(&self, job_type: &JobType) -> bool {
        self.job_type == *job_type
    }

    /// Returns whether both belong to the same sets.
    fn is_like(&self, other: &Self) -> bool {
        let Self { seq: _, queue, state, job_type, priority, position } = other;
        self.state == *state
            && self.priority == *priority
            && self.queue == *queue
            && self.job_type == *job_type
            && self.position.is_none()
            && position.is_none()
    }

    /// Returns whether the indexed fields match a filter.
    fn may_match(&self, filter: &JobFilter) -> bool {
        filter.queue.as_ref().is_none_or(|queue| *queue == self.queue)
            && filter.states.admits(self.state)
            && filter.job_type.as_ref().is_none_or(|job_type| *job_type == self.job_type)
            && filter.priority.is_none_or(|priority| priority == self.priority)
    }

    pub(crate) fn of(job: &Job) -> Self {
        Self {
            seq: job.seq,
            queue: job.queue.clone(),
            state: job.kind(),
            job_type: job.job_type.clone(),
            priority: job.priority,
            position: position_of(job.seq, &job.state),
        }
    }
}

/// Numbers that are searched for one page. The next page continues.
const STEPS_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub(crate) struct LiveIndex {
    queues: BitmapIndex<QueueName>,
    states: BitmapIndex<StateKind>,
    types: BitmapIndex<JobType>,
    priorities: BitmapIndex<Priority>,
    returned: HashMap<QueueName, HashMap<Priority, OutOfOrder>>,
    jobs: u64,
    /// Changes of the current batch. A snapshot may show them or not.
    uncommitted: Vec<ChangeRun>,
}

/// LiveChange of one job. At least one of the two is `Some`.
#[derive(Debug)]
pub(crate) struct LiveChange {
    pub before: Option<LiveEntry>,
    pub after: Option<LiveEntry>,
}

impl LiveChange {
    fn seq(&self) -> Seq {
        self.before.as_ref().or(self.after.as_ref()).map_or(Seq(0), |entry| entry.seq)
    }
}

/// Consecutive numbers with the same change: the first change and the last number.
#[derive(Debug)]
struct ChangeRun {
    change: LiveChange,
    last: Seq,
}

impl ChangeRun {
    fn extends(&self, next: &LiveChange) -> bool {
        let alike = |one: &Option<LiveEntry>, other: &Option<LiveEntry>| match (one, other) {
            (Some(one), Some(other)) => one.is_like(other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        self.last.0 + 1 == next.seq().0
            && alike(&self.change.before, &next.before)
            && alike(&self.change.after, &next.after)
    }
}

/// Ready jobs whose position differs from their number.
#[derive(Debug, Default)]
struct OutOfOrder {
    seqs: RoaringTreemap,
    positions: RoaringTreemap,
}

impl OutOfOrder {
    /// Surplus of positions over numbers up to here, modulo 2^64.
    fn shift(&self, below: u64) -> u64 {
        self.positions.rank(below).wrapping_sub(self.seqs.rank(below))
    }
}

#[derive(Debug)]
struct BitmapIndex<T>(HashMap<T, RoaringTreemap>);

impl<T> Default for BitmapIndex<T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<T: Clone + Eq + Hash> BitmapIndex<T> {
    fn insert(&mut self, name: &T, seqs: RangeInclusive<u64>) {
        let set = match self.0.get_mut(name) {
            Some(set) => set,
            None => self.0.entry(name.clone()).or_default(),
        };
        if seqs.start() == seqs.end() {
            u64::from(set.insert(*seqs.start()))
        } else {
            set.insert_range(seqs)
        };
    }

    fn remove(&mut self, name: &T, seqs: RangeInclusive<u64>) {
        if let Some(set) = self.0.get_mut(name) {
            if seqs.start() == seqs.end() {
                u64::from(set.remove(*seqs.start()))
            } else {
                set.remove_range(seqs)
            };
            if set.is_empty() {
                self.0.remove(name);
            }
        }
    }

    /// Adds jobs in the order of their numbers; consecutive jobs of one name are added together.
    fn append(
        &mut self,
        heads: &[RecordHeader<'_>],
        name: impl Fn(&RecordHeader<'_>) -> T,
        same: impl Fn(&RecordHeader<'_>, &RecordHeader<'_>) -> bool,
    ) {
        for run in heads.chunk_by(|a, b| same(a, b)) {
            let Some(first) = run.first() else { continue };
            let set = self.0.entry(name(first)).or_default();
            // From the first number that is not above all others, numbers are inserted one by one.
            if let Err(error) = set.append(run.iter().map(|head| head.seq.0)) {
                let done = usize::try_from(error.valid_until()).unwrap_or(0);
                set.extend(run.iter().skip(done).map(|head| head.seq.0));
            }
        }
    }

    fn change(&mut self, seqs: &RangeInclusive<u64>, before: Option<&T>, after: Option<&T>) {
        if before == after {
            return;
        }
        if let Some(name) = before {
            self.remove(name, seqs.clone());
        }
        if let Some(name) = after {
            self.insert(name, seqs.clone());
        }
    }
}

/// Live jobs that match, newest first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LiveMatches {
    pub jobs: Vec<Seq>,
    /// The search stopped early and is complete from here on.
    pub stopped_at: Option<Seq>,
}

impl LiveIndex {
    /// Adds live records in the order of their numbers, during recovery.
    pub(crate) fn admit(&mut self, heads: &[RecordHeader<'_>]) {
        self.jobs += heads.len() as u64;
        self.queues.append(heads, |head| (*head.queue).clone(), |a, b| a.queue == b.queue);
        self.states.append(heads, |head| head.state.kind(), |a, b| a.state.kind() == b.state.kind());
        self.types.append(heads, |head| (*head.job_type).clone(), |a, b| a.job_type == b.job_type);
        self.priorities.append(heads, |head| head.priority, |a, b| a.priority == b.priority);
        for head in heads {
            if let Some(position) = position_of(head.seq, &head.state) {
                self.add_out_of_order(&head.queue, head.priority, head.seq, position);
            }
        }
    }

    fn add_out_of_order(&mut self, queue: &QueueName, priority: Priority, seq: Seq, position: u64) {
        let of_queue = match self.returned.get_mut(queue) {
            Some(of_queue) => of_queue,
            None => self.returned.entry(queue.clone()).or_default(),
        };
        let returned = of_queue.entry(priority).or_default();
        returned.seqs.insert(seq.0);
        returned.positions.insert(position);
    }

    fn remove_out_of_order(&mut self, queue: &QueueName, priority: Priority, seq: Seq, position: u64) {
        let Some(of_queue) = self.returned.get_mut(queue) else { return };
        if let Some(returned) = of_queue.get_mut(&priority) {
            returned.seqs.remove(seq.0);
            returned.positions.remove(position);
            if returned.seqs.is_empty() {
                of_queue.remove(&priority);
            }
        }
        if of_queue.is_empty() {
            self.returned.remove(queue);
        }
    }

    /// Returns the number of live jobs, including the current batch.
    pub(crate) fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Applies changes of the current batch, in ascending order of numbers.
    pub(crate) fn replace(&mut self, changes: impl IntoIterator<Item = LiveChange>) {
        let first = self.uncommitted.len();
        for change in changes {
            match self.uncommitted.get_mut(first..).and_then(<[ChangeRun]>::last_mut).filter(|run| run.extends(&change))
            {
                Some(run) => run.last = change.seq(),
                None => self.uncommitted.push(ChangeRun { last: change.seq(), change }),
            }
        }
        let runs = std::mem::take(&mut self.uncommitted);
        for ChangeRun { change, last } in runs.iter().skip(first) {
            self.put(change.seq(), *last, change.before.as_ref(), change.after.as_ref());
        }
        self.uncommitted = runs;
    }

    /// Forgets the changes of the batch: new snapshots show them.
    pub(crate) fn committed(&mut self) {
        self.uncommitted.clear();
    }

    /// Reverts the changes of the batch.
    pub(crate) fn rolled_back(&mut self) {
        for ChangeRun { change, last } in std::mem::take(&mut self.uncommitted).into_iter().rev() {
            self.put(change.seq(), last, change.after.as_ref(), change.before.as_ref());
        }
    }

    /// Returns jobs below `before` that the current batch has changed and that matched before or
    /// match now, newest first.
    ///
    /// Only the snapshot tells which of the two applies.
    pub(crate) fn uncommitted(&self, filter: &JobFilter, before: Option<Seq>) -> Vec<Seq> {
        let matches = |run: &&ChangeRun| {
            let LiveChange { before, after } = &run.change;
            before.iter().chain(after).any(|entry| entry.may_match(filter))
        };
        let jobs = self.uncommitted.iter().filter(matches).flat_map(|run| run.change.seq().0..=run.last.0).map(Seq);
        let mut jobs: Vec<Seq> = jobs.filter(|seq| before.is_none_or(|before| *seq < before)).collect();
        jobs.sort_unstable_by(|a, b| b.cmp(a));
        jobs.dedup();
        jobs
    }

    /// Applies one change to the numbers from `first` to `last`.
    fn put(&mut self, first: Seq, last: Seq, before: Option<&LiveEntry>, after: Option<&LiveEntry>) {
        let (seqs, jobs) = (first.0..=last.0, last.0 - first.0 + 1);
        let (more, less) = (u64::from(after.is_some()) * jobs, u64::from(before.is_some()) * jobs);
        self.jobs = (self.jobs + more).saturating_sub(less);
        self.queues.change(&seqs, before.map(|entry| &entry.queue), after.map(|entry| &entry.queue));
        self.states.change(&seqs, before.map(|entry| &entry.state), after.map(|entry| &entry.state));
        self.types.change(&seqs, before.map(|entry| &entry.job_type), after.map(|entry| &entry.job_type));
        self.priorities.change(&seqs, before.map(|entry| &entry.priority), after.map(|entry| &entry.priority));
        if let Some((entry, position)) = before.and_then(|entry| Some((entry, entry.position?))) {
            self.remove_out_of_order(&entry.queue, entry.priority, first, position);
        }
        if let Some((entry, position)) = after.and_then(|entry| Some((entry, entry.position?))) {
            self.add_out_of_order(&entry.queue, entry.priority, first, position);
        }
    }

    /// Returns jobs of a queue in a state, in order of creation.
    pub(crate) fn in_queue(&self, queue: &QueueName, state: StateKind, limit: usize) -> Vec<Seq> {
        let (Some(queue), Some(state)) = (self.queues.0.get(queue), self.states.0.get(&state)) else {
            return Vec::new();
        };
        let (few, many) = if queue.len() <= state.len() { (queue, state) } else { (state, queue) };
        few.iter().filter(|number| many.contains(*number)).take(limit).map(Seq).collect()
    }

    pub(crate) fn jobs_of(&self, queue: &QueueName) -> u64 {
        self.queues.0.get(queue).map_or(0, RoaringTreemap::len)
    }

    /// Returns the number of jobs before a position. Adds up set sizes and visits no job.
    pub(crate) fn count_ahead(&self, position: &QueuePosition) -> u64 {
        let (Some(queue), Some(scheduled)) =
            (self.queues.0.get(&position.queue), self.states.0.get(&StateKind::Scheduled))
        else {
            return 0;
        };
        let Some(below) = position.position.checked_sub(1) else { return 0 };
        let ready = queue & scheduled;
        let of_queue = self.returned.get(&position.queue);
        let Some(priority) = position.priority else {
            let shifts = of_queue.into_iter().flat_map(HashMap::values).map(|returned| returned.shift(below));
            return shifts.fold(ready.rank(below), u64::wrapping_add);
        };
        let shift = of_queue.and_then(|of_queue| of_queue.get(&priority)).map_or(0, |returned| returned.shift(below));
        let of = |level: &Priority| self.priorities.0.get(level);
        let more_urgent = Priority::ALL.iter().filter(|level| **level < priority).filter_map(of);
        let more_urgent: u64 = more_urgent.map(|set| ready.intersection_len(set)).sum();
        let equal = of(&priority).map_or(0, |equal| (&ready & equal).rank(below));
        more_urgent + equal.wrapping_add(shift)
    }

    /// Returns matches of queue, states, type and priority below `before`.
    pub(crate) fn find(&self, filter: &JobFilter, before: Option<Seq>, limit: usize) -> LiveMatches {
        let mut sets = Vec::new();
        let filters = [
            filter.queue.as_ref().map(|name| self.queues.0.get(name)),
            filter.job_type.as_ref().map(|job_type| self.types.0.get(job_type)),
            filter.priority.as_ref().map(|priority| self.priorities.0.get(priority)),
        ];
        for set in filters.into_iter().flatten() {
            match set {
                Some(set) => sets.push(set),
                None => return LiveMatches { jobs: Vec::new(), stopped_at: None },
            }
        }
        if filter.states.is_empty() && !sets.is_empty() {
            return intersection(sets, before, limit);
        }
        // Every job has one state, so the results of the states are disjoint.
        let of_states = filter.states.admitted().filter_map(|state| self.states.0.get(&state));
        let found = of_states.map(|set| intersection([&*sets, &[set]].concat(), before, limit)).collect();
        merge(found, limit)
    }
}

/// Returns the jobs that are in all of these sets.
fn intersection(mut sets: Vec<&RoaringTreemap>, before: Option<Seq>, limit: usize) -> LiveMatches {
    sets.sort_unstable_by_key(|set| set.len());
    let Some((fewest, others)) = sets.split_first() else {
        return LiveMatches { jobs: Vec::new(), stopped_at: None };
    };
    walk(fewest, before, limit, |number| others.iter().all(|set| set.contains(number)))
}

/// Merges two results. The result is complete down to the higher end of the two.
fn merge(found: Vec<LiveMatches>, limit: usize) -> LiveMatches {
    let mut stopped_at = found.iter().filter_map(|found| found.stopped_at).max();
    let mut jobs: Vec<Seq> = found.into_iter().flat_map(|found| found.jobs).collect();
    jobs.retain(|seq| stopped_at.is_none_or(|stopped_at| *seq >= stopped_at));
    jobs.sort_unstable_by(|a, b| b.cmp(a));
    if jobs.len() > limit {
        jobs.truncate(limit);
        stopped_at = jobs.last().copied();
    }
    LiveMatches { jobs, stopped_at }
}

/// Iterates a set downwards from `before`.
fn walk(set: &RoaringTreemap, before: Option<Seq>, limit: usize, is_match: impl Fn(u64) -> bool) -> LiveMatches {
    let mut jobs = Vec::new();
    let mut steps = 0;
    let mut rest = set.iter();
    if let Some(before) = before {
        rest.advance_back_to(before.0.saturating_sub(1));
    }
    let below = |number: &u64| before.is_none_or(|before| *number < before.0);
    for number in rest.rev().filter(below) {
        if is_match(number) {
            jobs.push(Seq(number));
        }
        steps += 1;
        if jobs.len() >= limit || steps >= STEPS_MAX {
            return LiveMatches { jobs, stopped_at: Some(Seq(number)) };
        }
    }
    LiveMatches { jobs, stopped_at: None }
}
