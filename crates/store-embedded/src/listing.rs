//! Which live jobs match what: compressed sets of sequence numbers, one for each queue, state, type and priority.

use std::hash::Hash;

use foldhash::HashMap;
use longshore_core::id::{JobType, QueueName, Seq};
use longshore_core::job::{Job, Outline};
use longshore_core::priority::Priority;
use longshore_core::state::StateKind;
use longshore_store::JobFilter;
use roaring::RoaringTreemap;

/// What listings look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveEntry {
    seq: Seq,
    queue: QueueName,
    state: StateKind,
    job_type: JobType,
    priority: Priority,
}

impl LiveEntry {
    pub(crate) fn has_type(&self, job_type: &JobType) -> bool {
        self.job_type == *job_type
    }

    pub(crate) fn outlined(job: &Outline<'_>, priority: Priority) -> Self {
        Self {
            seq: job.seq,
            queue: job.queue.clone(),
            state: job.state.kind(),
            job_type: job.job_type.clone(),
            priority,
        }
    }

    pub(crate) fn of(job: &Job) -> Self {
        Self {
            seq: job.seq,
            queue: job.queue.clone(),
            state: job.kind(),
            job_type: job.job_type.clone(),
            priority: job.priority,
        }
    }
}

/// Numbers looked at for one page; what is not found by then is found by the next one.
const STEPS_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub(crate) struct LiveIndex {
    queues: Sets<QueueName>,
    states: Sets<StateKind>,
    types: Sets<JobType>,
    priorities: Sets<Priority>,
}

#[derive(Debug)]
struct Sets<T>(HashMap<T, RoaringTreemap>);

impl<T> Default for Sets<T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<T: Clone + Eq + Hash> Sets<T> {
    fn insert(&mut self, name: &T, seq: Seq) {
        match self.0.get_mut(name) {
            Some(set) => set.insert(seq.0),
            None => self.0.entry(name.clone()).or_default().insert(seq.0),
        };
    }

    fn remove(&mut self, name: &T, seq: Seq) {
        if let Some(set) = self.0.get_mut(name) {
            set.remove(seq.0);
            if set.is_empty() {
                self.0.remove(name);
            }
        }
    }

    fn change(&mut self, seq: Seq, before: Option<&T>, after: Option<&T>) {
        if before == after {
            return;
        }
        if let Some(name) = before {
            self.remove(name, seq);
        }
        if let Some(name) = after {
            self.insert(name, seq);
        }
    }
}

/// Live jobs that match, newest first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub jobs: Vec<Seq>,
    /// The search stopped early: everything from here up has been looked at.
    pub stopped_at: Option<Seq>,
}

impl LiveIndex {
    pub(crate) fn replace(&mut self, before: Option<&LiveEntry>, after: Option<&LiveEntry>) {
        let Some(seq) = before.or(after).map(|entry| entry.seq) else { return };
        self.queues.change(seq, before.map(|entry| &entry.queue), after.map(|entry| &entry.queue));
        self.states.change(seq, before.map(|entry| &entry.state), after.map(|entry| &entry.state));
        self.types.change(seq, before.map(|entry| &entry.job_type), after.map(|entry| &entry.job_type));
        self.priorities.change(seq, before.map(|entry| &entry.priority), after.map(|entry| &entry.priority));
    }

    /// In order of creation.
    pub(crate) fn in_queue(&self, queue: &QueueName, state: StateKind, limit: usize) -> Vec<Seq> {
        let (Some(queue), Some(state)) = (self.queues.0.get(queue), self.states.0.get(&state)) else {
            return Vec::new();
        };
        let (few, many) = if queue.len() <= state.len() { (queue, state) } else { (state, queue) };
        few.iter().filter(|number| many.contains(*number)).take(limit).map(Seq).collect()
    }

    /// Matches of queue, state, type and priority before `before`.
    pub(crate) fn find(&self, filter: &JobFilter, before: Option<Seq>, limit: usize) -> Found {
        let mut sets = Vec::new();
        let wanted = [
            filter.queue.as_ref().map(|name| self.queues.0.get(name)),
            filter.state.as_ref().map(|state| self.states.0.get(state)),
            filter.job_type.as_ref().map(|job_type| self.types.0.get(job_type)),
            filter.priority.as_ref().map(|priority| self.priorities.0.get(priority)),
        ];
        for set in wanted.into_iter().flatten() {
            match set {
                Some(set) => sets.push(set),
                None => return Found { jobs: Vec::new(), stopped_at: None },
            }
        }
        if sets.is_empty() {
            return self.find_any(before, limit);
        }
        sets.sort_unstable_by_key(|set| set.len());
        let Some((fewest, others)) = sets.split_first() else {
            return Found { jobs: Vec::new(), stopped_at: None };
        };
        walk(fewest, before, limit, |number| others.iter().all(|set| set.contains(number)))
    }

    /// Every job has a state: the newest of all states' newest.
    fn find_any(&self, before: Option<Seq>, limit: usize) -> Found {
        let mut jobs: Vec<Seq> =
            self.states.0.values().flat_map(|set| walk(set, before, limit, |_| true).jobs).collect();
        jobs.sort_unstable_by(|a, b| b.cmp(a));
        jobs.truncate(limit);
        Found { jobs, stopped_at: None }
    }
}

/// Walks down a set from `before`.
fn walk(set: &RoaringTreemap, before: Option<Seq>, limit: usize, fits: impl Fn(u64) -> bool) -> Found {
    let mut jobs = Vec::new();
    let mut steps = 0;
    let mut rest = set.iter();
    if let Some(before) = before {
        rest.advance_back_to(before.0.saturating_sub(1));
    }
    let below = |number: &u64| before.is_none_or(|before| *number < before.0);
    for number in rest.rev().filter(below) {
        if fits(number) {
            jobs.push(Seq(number));
        }
        steps += 1;
        if jobs.len() >= limit || steps >= STEPS_MAX {
            return Found { jobs, stopped_at: Some(Seq(number)) };
        }
    }
    Found { jobs, stopped_at: None }
}
