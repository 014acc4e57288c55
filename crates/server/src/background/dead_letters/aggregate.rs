//! The dead letters in memory: which group each belongs to, and the sums of the groups.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use longshore_api::dead_letters::DeadLetterGroup;
use longshore_core::error_shape::{format_group_id, group_key, shape};
use longshore_core::id::{JobId, JobType, QueueName};
use longshore_core::job::Job;
use longshore_core::state::State;
use longshore_core::{Duration, Timestamp};

use crate::convert::{text, time};

/// Dead letters that are kept; the counts are exact up to this number.
const MEMBERS_MAX: usize = 100_000;
/// Groups of one queue each that are kept. Their shapes are the longest texts here.
const GROUPS_MAX: usize = 20_000;
/// Types and queues that the report of a group names.
const NAMES_MAX: usize = 10;
const HOUR_MINUTES: i64 = 60;
/// Time until a dead letter is read again whose retention has ended but which is still there.
const EXPIRY_RECHECK: Duration = Duration::from_secs(5);

type GroupPath = (QueueName, u64);

#[derive(Debug)]
pub(super) struct Aggregate {
    members: HashMap<JobId, GroupedJob>,
    groups: HashMap<GroupPath, QueueGroup>,
    /// When the retention of each dead letter ends.
    expiries: BTreeSet<(Timestamp, JobId)>,
    /// Dead letters of the last hour, by the minute of their end.
    minutes: BTreeMap<i64, HashMap<GroupPath, u64>>,
    /// Number of the last sweep, and the members that it has seen.
    sweep: u32,
    swept: usize,
    /// Whether some dead letters found no place.
    is_truncated: bool,
    members_max: usize,
}

#[derive(Debug)]
struct GroupedJob {
    path: GroupPath,
    job_type: JobType,
    ended_at: Timestamp,
    expires_at: Option<Timestamp>,
    sweep: u32,
}

/// What the groups need of a dead letter.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadLetterFacts<'a> {
    pub queue: &'a QueueName,
    pub job_type: &'a JobType,
    pub code: Option<&'a Arc<str>>,
    pub message: &'a str,
    pub ended_at: Timestamp,
    pub retention: Option<Duration>,
}

impl<'a> DeadLetterFacts<'a> {
    /// Returns `None` for a job in another state.
    pub(super) fn of(job: &'a Job) -> Option<Self> {
        let ended_at = match &job.state {
            State::DeadLetter { at } => *at,
            State::Pending { .. }
            | State::Scheduled { .. }
            | State::Delayed { .. }
            | State::Running(_)
            | State::Retrying { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return None,
        };
        let error = job.error.as_deref();
        Some(Self {
            queue: &job.queue,
            job_type: &job.job_type,
            code: error.and_then(|error| error.code.as_ref()),
            message: error.map_or("", |error| error.message.as_ref()),
            ended_at,
            retention: job.policy.retention.dead_letter,
        })
    }
}

/// The part of a group that is in one queue.
#[derive(Debug)]
struct QueueGroup {
    code: Option<Arc<str>>,
    shape: String,
    members: BTreeSet<(Timestamp, JobId)>,
    types: BTreeMap<JobType, usize>,
}

impl Default for Aggregate {
    fn default() -> Self {
        Self::with_room(MEMBERS_MAX)
    }
}

impl Aggregate {
    fn with_room(members_max: usize) -> Self {
        Self {
            members: HashMap::new(),
            groups: HashMap::new(),
            expiries: BTreeSet::new(),
            minutes: BTreeMap::new(),
            sweep: 0,
            swept: 0,
            is_truncated: false,
            members_max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    pub(super) fn has_room_for(&self, dead_letters: u64) -> bool {
        usize::try_from(dead_letters).is_ok_and(|dead_letters| dead_letters <= self.members_max)
    }

    /// Applies the present state of a job: adds or keeps a dead letter, removes every other job.
    pub(super) fn apply(&mut self, id: JobId, dead: Option<DeadLetterFacts<'_>>, now: Timestamp) {
        match dead {
            Some(dead) if self.members.get(&id).is_some_and(|member| member.ended_at == dead.ended_at) => {
                self.mark_swept(id, now);
            }
            Some(dead) => {
                self.remove(id);
                self.add(id, &dead, now);
            }
            None => self.remove(id),
        }
    }

    /// Marks a member as seen by the sweep.
    fn mark_swept(&mut self, id: JobId, now: Timestamp) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.sweep != self.sweep {
            member.sweep = self.sweep;
            self.swept += 1;
        }
        if let Some(at) = member.expires_at.filter(|at| *at <= now) {
            self.expiries.remove(&(at, id));
            let later = now + EXPIRY_RECHECK;
            member.expires_at = Some(later);
            self.expiries.insert((later, id));
        }
    }

    fn add(&mut self, id: JobId, dead: &DeadLetterFacts<'_>, now: Timestamp) {
        let ended_at = dead.ended_at;
        let shape = shape(dead.message);
        let path = (dead.queue.clone(), group_key(dead.code.map_or("", |code| code.as_ref()), &shape));
        // Members that a sweep has not seen leave at its end, so they take no room.
        if self.swept >= self.members_max || (self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&path)) {
            self.is_truncated = true;
            return;
        }
        let group = self.groups.entry(path.clone()).or_insert_with(|| QueueGroup {
            code: dead.code.cloned(),
            shape,
            members: BTreeSet::new(),
            types: BTreeMap::new(),
        });
        group.members.insert((ended_at, id));
        *group.types.entry(dead.job_type.clone()).or_default() += 1;
        if minute_of(ended_at) > minute_of(now) - HOUR_MINUTES {
            *self.minutes.entry(minute_of(ended_at)).or_default().entry(path.clone()).or_default() += 1;
        }
        let expires_at = dead.retention.map(|retention| (ended_at + retention).max(now));
        self.expiries.extend(expires_at.map(|at| (at, id)));
        self.swept += 1;
        let member = GroupedJob { path, job_type: dead.job_type.clone(), ended_at, expires_at, sweep: self.sweep };
        self.members.insert(id, member);
    }

    fn remove(&mut self, id: JobId) {
        let Some(member) = self.members.remove(&id) else { return };
        if member.sweep == self.sweep {
            self.swept -= 1;
        }
        if let Some(at) = member.expires_at {
            self.expiries.remove(&(at, id));
        }
        let minute = minute_of(member.ended_at);
        if let Some(counts) = self.minutes.get_mut(&minute) {
            decrement(counts, &member.path);
            if counts.is_empty() {
                self.minutes.remove(&minute);
            }
        }
        let Some(group) = self.groups.get_mut(&member.path) else { return };
        group.members.remove(&(member.ended_at, id));
        if let Some(count) = group.types.get_mut(&member.job_type) {
            *count -= 1;
            if *count == 0 {
                group.types.remove(&member.job_type);
            }
        }
        if group.members.is_empty() {
            self.groups.remove(&member.path);
        }
    }

    /// Begins to read all dead letters again.
    pub(super) fn begin_sweep(&mut self) {
        self.sweep = self.sweep.wrapping_add(1);
        self.swept = 0;
        self.is_truncated = false;
    }

    /// Whether a sweep need not read on.
    pub(super) fn is_full(&self) -> bool {
        self.swept >= self.members_max
    }

    /// Removes the members that the sweep has not seen. `is_complete`: it has read everything.
    pub(super) fn end_sweep(&mut self, is_complete: bool) {
        let sweep = self.sweep;
        let unseen: Vec<JobId> =
            self.members.iter().filter(|(_, member)| member.sweep != sweep).map(|(id, _)| *id).collect();
        unseen.into_iter().for_each(|id| self.remove(id));
        self.is_truncated |= !is_complete;
    }

    /// Returns dead letters whose retention has ended, oldest first.
    pub(super) fn expired(&self, now: Timestamp, limit: usize) -> Vec<JobId> {
        self.expiries.iter().take_while(|(at, _)| *at <= now).take(limit).map(|(_, id)| *id).collect()
    }

    pub(super) fn forget_minutes_before(&mut self, now: Timestamp) {
        self.minutes = self.minutes.split_off(&(minute_of(now) - HOUR_MINUTES + 1));
    }

    /// Returns the largest groups of the queues that `admits` admits, largest first.
    pub(super) fn report(
        &self,
        now: Timestamp,
        limit: usize,
        admits: impl Fn(&QueueName) -> bool,
    ) -> Vec<DeadLetterGroup> {
        let mut merged: HashMap<u64, Vec<(&GroupPath, &QueueGroup)>> = HashMap::new();
        for (path, group) in self.groups.iter().filter(|(path, _)| admits(&path.0)) {
            merged.entry(path.1).or_default().push((path, group));
        }
        let size =
            |parts: &Vec<(&GroupPath, &QueueGroup)>| parts.iter().map(|(_, part)| part.members.len()).sum::<usize>();
        let newest = |parts: &Vec<(&GroupPath, &QueueGroup)>| {
            parts.iter().filter_map(|(_, part)| part.members.last()).max().copied()
        };
        let mut largest: Vec<_> = merged.into_iter().collect();
        largest.sort_by_cached_key(|(key, parts)| (Reverse(size(parts)), Reverse(newest(parts)), *key));
        largest.truncate(limit);
        largest.iter().filter_map(|(key, parts)| self.describe(*key, parts, now)).collect()
    }

    fn describe(&self, key: u64, parts: &[(&GroupPath, &QueueGroup)], now: Timestamp) -> Option<DeadLetterGroup> {
        let (_, first) = parts.first()?;
        let members = || parts.iter().map(|(_, part)| &part.members);
        let (oldest, _) = members().filter_map(BTreeSet::first).min()?;
        let (newest, example) = members().filter_map(BTreeSet::last).max()?;
        let types: BTreeSet<&JobType> = parts.iter().flat_map(|(_, part)| part.types.keys()).collect();
        let queues: BTreeSet<&QueueName> = parts.iter().map(|(path, _)| &path.0).collect();
        let recent = self
            .minutes
            .range(minute_of(now) - HOUR_MINUTES + 1..)
            .map(|(_, counts)| parts.iter().filter_map(|(path, _)| counts.get(*path)).sum::<u64>());
        Some(DeadLetterGroup {
            id: format_group_id(key),
            code: text(first.code.as_ref()),
            shape: first.shape.clone(),
            count: members().map(|members| members.len() as u64).sum(),
            last_hour: recent.sum(),
            first_at: time(*oldest),
            last_at: time(*newest),
            types: types.into_iter().take(NAMES_MAX).map(ToString::to_string).collect(),
            queues: queues.into_iter().take(NAMES_MAX).map(ToString::to_string).collect(),
            example: example.to_string(),
        })
    }
}

fn decrement(counts: &mut HashMap<GroupPath, u64>, path: &GroupPath) {
    if let Some(count) = counts.get_mut(path) {
        *count -= 1;
        if *count == 0 {
            counts.remove(path);
        }
    }
}

fn minute_of(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(60_000)
}

#[cfg(test)]
mod tests;
