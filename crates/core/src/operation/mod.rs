//! Durable operations: one action on all jobs that match a filter, in slices.
//!
//! An [`OperationProgress`] is the progress of one: a value that a store keeps. A server that works
//! on it asks [`OperationProgress::next_step`], does that step, and records the result. The order
//! is fixed: count, treat slice by slice from the newest job to the oldest, watch the canary, rest.
//!
//! A slice is recorded before its jobs are changed, and its result after. Between the two the
//! [`planned`] jobs say which of them the operation has changed already, so that a slice that is
//! repeated after a crash counts every job once.

pub mod pace;
pub mod planned;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{JobId, Seq};
use crate::refusal::Refusal;
use crate::state::StateKind;
use crate::time::{Duration, Timestamp};

pub use longshore_types::{OperationAction, OperationState, UndoState};
use pace::{pause_after, slice_size};
use planned::{PlannedJob, TreatedJob};

/// How long the jobs of a slice can be taken back.
pub const UNDO_WINDOW: Duration = Duration::from_mins(5);

/// The progress of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationProgress {
    pub action: OperationAction,
    /// Jobs per second.
    pub rate: Option<u32>,
    pub dry_run: bool,
    pub state: OperationState,
    pub count: Count,
    /// Jobs with lower sequence numbers are not treated yet.
    pub before: Seq,
    /// Whether all jobs are treated.
    pub is_exhausted: bool,
    pub changed: u64,
    pub refused: u64,
    /// Refused jobs by error code.
    pub refusals: BTreeMap<Arc<str>, u64>,
    /// The slice whose result is not recorded yet.
    pub slice: Option<PlannedSlice>,
    /// When the next slice is due.
    pub next_at: Timestamp,
    pub canary: Option<Canary>,
    pub undo: Option<UndoProgress>,
    pub chunks: TreatedChunks,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// The count of the matching jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub matched: u64,
    /// Jobs with lower sequence numbers are not counted yet.
    pub before: Seq,
    pub is_complete: bool,
}

/// Jobs that are treated together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSlice {
    pub jobs: Vec<PlannedJob>,
    pub planned_at: Timestamp,
    /// Where the next slice begins.
    pub before: Seq,
    /// Whether no job is left after this slice.
    pub is_last: bool,
}

/// The jobs that are treated first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Canary {
    pub size: u32,
    /// How many were treated, refused ones included.
    pub treated: u32,
    /// Whether all of them are treated.
    pub is_complete: bool,
    pub jobs: Vec<CanaryJob>,
    pub continued_at: Option<Timestamp>,
}

/// A job that accepted the action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanaryJob {
    /// The job that runs: itself or its clone.
    pub id: JobId,
    /// How it ended; `None`: it has not, or nothing was recorded.
    pub outcome: Option<CanaryOutcome>,
}

/// How a canary job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanaryOutcome {
    Ended {
        state: StateKind,
        error_code: Option<Arc<str>>,
    },
    /// Its record is deleted or pruned.
    Gone,
}

/// The undo of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoProgress {
    pub state: UndoState,
    pub at: Timestamp,
    pub undone: u64,
    pub kept: u64,
}

/// The stored records about treated jobs, numbered without gaps: one per slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreatedChunks {
    pub first: u64,
    pub next: u64,
    /// When the slice of the first one was treated.
    pub first_at: Timestamp,
    /// When the slice of the last one was treated.
    pub last_at: Timestamp,
}

impl TreatedChunks {
    pub fn is_empty(&self) -> bool {
        self.first >= self.next
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationStep {
    Count,
    /// Select up to so many jobs and record them as a slice.
    Plan {
        jobs: usize,
    },
    /// Change the jobs of the slice and record the result.
    Treat,
    /// Look whether the canary jobs have ended.
    WatchCanary,
    /// Take the jobs of the last chunk back.
    Undo,
    /// Drop the chunks that can no longer be taken back.
    DropChunks,
    /// Nothing until this time; `None`: until a client changes something.
    Rest(Option<Timestamp>),
}

/// The result of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceResult {
    pub changed: Vec<TreatedJob>,
    /// The error codes of the refusals.
    pub refused: Vec<Arc<str>>,
}

impl OperationProgress {
    /// Creates an operation on the jobs up to a sequence number; `None`: there are no jobs.
    /// `matched` is their number, if it is known.
    pub fn new(action: OperationAction, last: Option<Seq>, matched: Option<u64>, now: Timestamp) -> Self {
        let before = Seq(last.map_or(0, |last| last.0.saturating_add(1)));
        let count = Count { matched: matched.unwrap_or(0), before, is_complete: matched.is_some() || last.is_none() };
        Self {
            action,
            rate: None,
            dry_run: false,
            state: OperationState::Running,
            count,
            before,
            is_exhausted: last.is_none(),
            changed: 0,
            refused: 0,
            refusals: BTreeMap::new(),
            slice: None,
            next_at: now,
            canary: None,
            undo: None,
            chunks: TreatedChunks::default(),
            created_at: now,
            updated_at: now,
            ended_at: None,
        }
    }

    /// Returns what to do at this time.
    pub fn next_step(&self, now: Timestamp) -> OperationStep {
        if self.slice.is_some() {
            return OperationStep::Treat;
        }
        match self.state {
            OperationState::Running => self.next_step_of_running(now),
            OperationState::Waiting => self.rest(now, None),
            OperationState::Stopped | OperationState::Done => match &self.undo {
                Some(undo) if undo.state == UndoState::Running => OperationStep::Undo,
                Some(_) | None => self.rest(now, None),
            },
        }
    }

    fn next_step_of_running(&self, now: Timestamp) -> OperationStep {
        if !self.count.is_complete {
            return OperationStep::Count;
        }
        let size = match &self.canary {
            Some(canary) if canary.is_complete && canary.continued_at.is_none() => return OperationStep::WatchCanary,
            Some(canary) if !canary.is_complete => canary.size.saturating_sub(canary.treated),
            Some(_) | None => u32::MAX,
        };
        if self.next_at > now {
            return self.rest(now, Some(self.next_at));
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        OperationStep::Plan { jobs: slice_size(self.rate).min(size) }
    }

    /// Drops old chunks while there is nothing else to do.
    fn rest(&self, now: Timestamp, until: Option<Timestamp>) -> OperationStep {
        let drop_at = (!self.chunks.is_empty()).then(|| self.chunks.first_at + UNDO_WINDOW);
        match drop_at {
            Some(drop_at) if drop_at <= now => OperationStep::DropChunks,
            Some(_) | None => OperationStep::Rest(until.into_iter().chain(drop_at).min()),
        }
    }

    /// Whether nothing is left to do, now or later, unless a client asks for it.
    pub fn is_settled(&self) -> bool {
        let has_ended = match self.state {
            OperationState::Running | OperationState::Waiting => false,
            OperationState::Stopped | OperationState::Done => true,
        };
        has_ended && self.slice.is_none() && self.chunks.is_empty()
    }

    /// Records counted jobs. `before`: where the count goes on; `None`: it is complete.
    pub fn record_count(&mut self, matched: u64, before: Option<Seq>, now: Timestamp) {
        self.count.matched += matched;
        match before {
            Some(before) => self.count.before = before,
            None => self.count.is_complete = true,
        }
        self.updated_at = now;
        self.advance(now);
    }

    /// Records the jobs of the next slice. A slice without jobs needs no treatment.
    pub fn plan(&mut self, slice: PlannedSlice, now: Timestamp) {
        self.updated_at = now;
        if slice.jobs.is_empty() {
            (self.before, self.is_exhausted) = (slice.before, slice.is_last);
            self.advance(now);
            return;
        }
        self.next_at = now + pause_after(self.rate, slice.jobs.len());
        self.slice = Some(slice);
    }

    /// Records the result of the slice. Returns the number of the chunk in which its changed jobs
    /// are to be stored, if they can be taken back.
    pub fn record_slice(&mut self, result: &SliceResult, now: Timestamp) -> Option<u64> {
        let slice = self.slice.take()?;
        (self.before, self.is_exhausted) = (slice.before, slice.is_last);
        self.changed += result.changed.len() as u64;
        self.refused += result.refused.len() as u64;
        for code in &result.refused {
            *self.refusals.entry(Arc::clone(code)).or_default() += 1;
        }
        if let Some(canary) = self.canary.as_mut().filter(|canary| !canary.is_complete) {
            canary.treated += u32::try_from(slice.jobs.len()).unwrap_or(u32::MAX);
            canary.jobs.extend(result.changed.iter().map(|job| CanaryJob { id: job.runs(), outcome: None }));
        }
        self.updated_at = now;
        let chunk = (can_undo(self.action) && !result.changed.is_empty()).then(|| {
            if self.chunks.is_empty() {
                self.chunks.first_at = now;
            }
            self.chunks.last_at = now;
            self.chunks.next += 1;
            self.chunks.next - 1
        });
        self.advance(now);
        chunk
    }

    /// Ends what is complete.
    fn advance(&mut self, now: Timestamp) {
        if self.state != OperationState::Running || !self.count.is_complete || self.slice.is_some() {
            return;
        }
        if let Some(canary) = &mut self.canary
            && !self.dry_run
            && canary.continued_at.is_none()
        {
            canary.is_complete |= canary.treated >= canary.size || self.is_exhausted;
            let is_over = self.is_exhausted && canary.treated == 0;
            if !is_over {
                return;
            }
        }
        if self.dry_run || self.is_exhausted {
            self.end(OperationState::Done, now);
        }
    }

    fn end(&mut self, state: OperationState, now: Timestamp) {
        (self.state, self.ended_at, self.updated_at) = (state, Some(now), now);
    }

    /// Starts: an operation without matching jobs, or a counted dry run, is done at once.
    pub fn start(&mut self, now: Timestamp) {
        if self.count.is_complete && self.count.matched == 0 {
            self.is_exhausted = true;
        }
        self.advance(now);
    }

    /// Records how the canary jobs have ended, in their order; `None`: that job has not. The
    /// operation waits as soon as all have ended. Returns whether it does.
    pub fn record_canary(&mut self, outcomes: Vec<Option<CanaryOutcome>>, now: Timestamp) -> bool {
        let Some(canary) = self.canary.as_mut().filter(|canary| canary.is_complete) else { return false };
        if self.state != OperationState::Running || outcomes.len() != canary.jobs.len() {
            return false;
        }
        if outcomes.iter().any(Option::is_none) {
            return false;
        }
        canary.jobs.iter_mut().zip(outcomes).for_each(|(job, outcome)| job.outcome = outcome);
        (self.state, self.updated_at) = (OperationState::Waiting, now);
        true
    }

    /// Treats the rest after the canary.
    pub fn resume(&mut self, now: Timestamp) -> Result<(), Refusal> {
        let Some(canary) = self.canary.as_mut().filter(|_| self.state == OperationState::Waiting) else {
            return Err(Refusal::Illegal("the operation does not wait: only a waiting one can be continued"));
        };
        canary.continued_at = Some(now);
        (self.state, self.updated_at, self.next_at) = (OperationState::Running, now, now.max(self.next_at));
        self.advance(now);
        Ok(())
    }

    /// Stops the operation after the present slice. Returns whether it was not stopped before.
    pub fn stop(&mut self, now: Timestamp) -> Result<bool, Refusal> {
        match self.state {
            OperationState::Running | OperationState::Waiting => {
                self.end(OperationState::Stopped, now);
                Ok(true)
            }
            OperationState::Stopped => Ok(false),
            OperationState::Done => Err(Refusal::Illegal("the operation is done: there is nothing to stop")),
        }
    }

    /// Returns until when the operation can be undone; `None`: it cannot.
    pub fn undo_until(&self) -> Option<Timestamp> {
        let has_jobs = !self.chunks.is_empty() || self.slice.is_some();
        let is_possible = can_undo(self.action) && self.undo.is_none() && has_jobs;
        is_possible.then(|| {
            self.chunks.last_at.max(self.slice.as_ref().map_or(Timestamp::default(), |s| s.planned_at)) + UNDO_WINDOW
        })
    }

    /// Starts to take back what was treated within the last five minutes. A running operation is
    /// stopped first.
    pub fn start_undo(&mut self, now: Timestamp) -> Result<(), Refusal> {
        if !can_undo(self.action) {
            return Err(Refusal::Illegal("only operations that cancel or requeue jobs can be undone"));
        }
        if self.undo.is_some() {
            return Err(Refusal::Illegal("the operation was already undone: see \"undo\""));
        }
        if self.undo_until().is_none_or(|until| until <= now) {
            return Err(Refusal::Illegal("there is nothing to undo: no job was changed in the last 5 minutes"));
        }
        match self.state {
            OperationState::Running | OperationState::Waiting => self.end(OperationState::Stopped, now),
            OperationState::Stopped | OperationState::Done => {}
        }
        self.undo = Some(UndoProgress { state: UndoState::Running, at: now, undone: 0, kept: 0 });
        self.updated_at = now;
        Ok(())
    }

    /// Records that the jobs of the last chunk were taken back or kept.
    pub fn record_undo(&mut self, undone: u64, kept: u64, now: Timestamp) {
        self.chunks.next = self.chunks.next.saturating_sub(1).max(self.chunks.first);
        let is_over = self.chunks.is_empty();
        if let Some(undo) = &mut self.undo {
            undo.undone += undone;
            undo.kept += kept;
            if is_over {
                undo.state = UndoState::Done;
            }
        }
        self.updated_at = now;
    }

    /// Records that the first chunks were dropped. `first_at`: when the jobs of the next one were
    /// treated; `None`: there is no other.
    pub fn record_dropped(&mut self, first: u64, first_at: Option<Timestamp>) {
        self.chunks.first = first.min(self.chunks.next);
        match first_at {
            Some(first_at) => self.chunks.first_at = first_at,
            None => self.chunks.first = self.chunks.next,
        }
    }

    /// Returns how many counted jobs were not treated yet.
    pub fn remaining(&self) -> u64 {
        if self.state == OperationState::Done && !self.dry_run {
            return 0;
        }
        self.count.matched.saturating_sub(self.changed + self.refused)
    }
}

/// Whether the changes of an action can be taken back.
pub fn can_undo(action: OperationAction) -> bool {
    match action {
        OperationAction::Requeue | OperationAction::Cancel => true,
        OperationAction::Delete | OperationAction::RunNow => false,
    }
}
