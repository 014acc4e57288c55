//! The record of a schedule, its progress and its ticks.

use std::sync::Arc;

use longshore_types::{Misfire, Overlap, TickOutcome};

use super::due_times::{DueTimes, find_time_zone};
use crate::id::{JobId, QueueName, ScheduleName};
use crate::refusal::Invalid;
use crate::time::{Duration, Timestamp};

/// When a schedule recurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recurrence {
    Cron(Arc<str>),
    Every(Duration),
}

/// The schedule that submitted a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSchedule {
    pub name: ScheduleName,
    /// `None`: a client triggered the job.
    pub due_at: Option<Timestamp>,
}

/// A schedule as clients define it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub name: ScheduleName,
    pub recurrence: Recurrence,
    pub time_zone: Arc<str>,
    pub queue: QueueName,
    /// The job of each tick, as JSON.
    pub job: Arc<str>,
    pub misfire: Misfire,
    pub overlap: Overlap,
    pub jitter: Duration,
    pub paused: bool,
    pub pause_note: Option<Arc<str>>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Where the intervals of `every` count from.
    pub counts_from: Timestamp,
}

/// How far the ticks of a schedule were processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// All ticks that are due until then were processed or dropped.
    pub processed_until: Timestamp,
    /// Number of recorded ticks so far.
    pub ticks: u64,
    pub last: Option<Tick>,
    /// The job of the last tick that fired.
    pub last_job: Option<JobId>,
}

/// A tick that was processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    pub due_at: Timestamp,
    /// `None` unless the tick fired.
    pub fired_at: Option<Timestamp>,
    pub outcome: TickOutcome,
    pub job: Option<JobId>,
    pub detail: Option<Arc<str>>,
}

/// What a change of a schedule does to its definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionChange {
    Nothing,
    /// The due times stay the same: missed ticks stay missed.
    SameTimes,
    /// Ticks that are due until now are dropped.
    NewTimes,
}

impl Schedule {
    /// Returns the due times. `now` is where the search for a first match starts.
    pub fn due_times(&self, now: Timestamp) -> Result<DueTimes, Invalid> {
        let zone = find_time_zone(&self.time_zone)?;
        match &self.recurrence {
            Recurrence::Cron(expression) => DueTimes::cron(expression, zone, now),
            Recurrence::Every(interval) => DueTimes::every(*interval, self.counts_from),
        }
    }

    /// Completes a definition that replaces `present`: its times of creation, change and counting.
    ///
    /// `paused` is `None` if the request keeps the present pause.
    pub fn replace(&mut self, present: &Self, paused: Option<bool>, now: Timestamp) -> DefinitionChange {
        self.paused = paused.unwrap_or(present.paused);
        self.pause_note = present.pause_note.clone().filter(|_| self.paused);
        self.created_at = present.created_at;
        self.updated_at = present.updated_at;
        let is_same_interval = self.recurrence == present.recurrence;
        self.counts_from = if is_same_interval { present.counts_from } else { now };
        if *self == *present {
            return DefinitionChange::Nothing;
        }
        self.updated_at = now;
        let same_times = is_same_interval && self.time_zone == present.time_zone && self.paused == present.paused;
        if same_times { DefinitionChange::SameTimes } else { DefinitionChange::NewTimes }
    }

    /// Pauses or resumes the schedule. Returns whether anything changed.
    pub fn set_paused(&mut self, paused: bool, note: Option<Arc<str>>, now: Timestamp) -> DefinitionChange {
        let (was_paused, old_note) = (self.paused, self.pause_note.clone());
        self.paused = paused;
        // A repeated pause without a note keeps the present one.
        self.pause_note = if paused { note.or_else(|| old_note.clone()) } else { None };
        if (self.paused, &self.pause_note) == (was_paused, &old_note) {
            return DefinitionChange::Nothing;
        }
        self.updated_at = now;
        if was_paused == paused { DefinitionChange::SameTimes } else { DefinitionChange::NewTimes }
    }
}

impl Progress {
    /// Returns the progress of a schedule whose first tick is due after `now`.
    pub fn starting(now: Timestamp) -> Self {
        Self { processed_until: now, ticks: 0, last: None, last_job: None }
    }

    /// Returns the progress after a change of the schedule.
    pub fn after(&self, change: DefinitionChange, now: Timestamp) -> Self {
        let processed_until = match change {
            DefinitionChange::Nothing | DefinitionChange::SameTimes => self.processed_until,
            DefinitionChange::NewTimes => self.processed_until.max(now),
        };
        Self { processed_until, ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
