//! The record of a job, and the few ways in which verbs may change it.

use std::sync::Arc;

use bytes::Bytes;

use crate::attempt::{Attempt, AttemptEnd, AttemptOutcome};
use crate::dependency::{Dependencies, Owes};
use crate::failure::Failure;
use crate::history::{Cause, History, Move};
use crate::id::{JobId, JobType, LeaseToken, LeaseVersion, QueueName, Seq};
use crate::limits::ATTEMPTS_MAX;
use crate::policy::{IdempotencyScope, Policy, RequeueOrder};
use crate::priority::Priority;
use crate::rng::Dice;
use crate::settle::OutcomeKind;
use crate::state::{Ending, State, StateKind};
use crate::tags::Tags;
use crate::time::{Duration, Timestamp};
use crate::workflow::Membership;

/// Everything the system knows about a job but its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub seq: Seq,
    pub queue: QueueName,
    pub job_type: JobType,
    pub state: State,
    pub counters: Counters,
    pub lease_version: LeaseVersion,
    /// Its own wish.
    pub priority: Priority,
    /// The most urgent of its dependencies, fixed at submission.
    pub inherited_priority: Priority,
    pub policy: Arc<Policy>,
    pub tags: Tags,
    pub correlation_id: Option<Arc<str>>,
    pub callback_url: Option<Arc<str>>,
    pub idempotency: Option<IdempotencyKey>,
    pub external_id: Option<Arc<str>>,
    pub created_at: Timestamp,
    /// Moves with the state, and with nothing else.
    pub updated_at: Timestamp,
    pub scheduled_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub first_started_at: Option<Timestamp>,
    pub last_heartbeat_at: Option<Timestamp>,
    pub attempt_ended_at: Option<Timestamp>,
    pub lifetime_ends_at: Option<Timestamp>,
    pub progress: Option<Bytes>,
    pub checkpoint: Option<Bytes>,
    pub result: Option<Bytes>,
    pub error: Option<Arc<Failure>>,
    pub dependencies: Dependencies,
    /// Not yet terminal jobs that depend on this one: while there are any, the record must stay.
    pub live_dependents: u32,
    /// What its dependents have not all been told yet.
    pub owes: Owes,
    pub parent: Option<JobId>,
    pub membership: Option<Membership>,
    pub requeued_from: Option<JobId>,
    pub requeued_as: Option<JobId>,
    /// The settlement that ended the last lease, so that a repetition is recognised.
    pub settled: Option<(LeaseToken, OutcomeKind)>,
    pub attempts: Vec<Attempt>,
    pub history: History,
}

/// What the order of jobs depends on: all that a rebuild has to know of a live record.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    pub seq: Seq,
    pub queue: &'a QueueName,
    pub job_type: &'a JobType,
    pub effective_priority: Priority,
    pub state: &'a State,
    pub policy: &'a Policy,
    pub scheduled_at: Option<Timestamp>,
    pub lifetime_ends_at: Option<Timestamp>,
    pub owes: Owes,
    pub updated_at: Timestamp,
}

/// Independent of each other, and all always kept: each specification counts something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub starts: u32,
    pub failures: u32,
    pub retries_scheduled: u32,
    pub requeues: u32,
    pub reclaims: u32,
}

/// A key and the scope it was given in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: Arc<str>,
    pub scope: IdempotencyScope,
    /// The type at submission: the scope does not follow a later change of type.
    pub job_type: JobType,
}

/// What a verb needs from outside: the time, chance, and the next number for a place in line. What it did to the state is left in `moves`.
#[expect(missing_debug_implementations, reason = "chance has no picture")]
pub struct Moment<'a> {
    pub now: Timestamp,
    pub dice: &'a mut dyn Dice,
    /// One counter serves sequence numbers and places in line, so that they compare.
    pub next_number: &'a mut u64,
    /// Lease versions given from now on are above this: raised when a store is restored from a backup, so that no version is given twice.
    pub lease_floor: LeaseVersion,
    pub moves: &'a mut Vec<Move>,
}

impl Moment<'_> {
    pub fn take_number(&mut self) -> u64 {
        let number = *self.next_number;
        *self.next_number += 1;
        number
    }
}

impl Job {
    pub fn effective_priority(&self) -> Priority {
        self.priority.more_urgent(self.inherited_priority)
    }

    pub fn outline(&self) -> Outline<'_> {
        Outline {
            seq: self.seq,
            queue: &self.queue,
            job_type: &self.job_type,
            effective_priority: self.effective_priority(),
            state: &self.state,
            policy: &self.policy,
            scheduled_at: self.scheduled_at,
            lifetime_ends_at: self.lifetime_ends_at,
            owes: self.owes,
            updated_at: self.updated_at,
        }
    }

    pub fn kind(&self) -> StateKind {
        self.state.kind()
    }

    /// The record takes part in the life of the queue: it is not terminal, or others still have to hear of its end.
    pub fn live(&self) -> bool {
        !self.state.terminal() || self.owes != Owes::Nothing
    }

    /// When the record may go; never while somebody alive depends on it.
    pub fn prune_at(&self) -> Option<Timestamp> {
        if self.live() || self.live_dependents > 0 {
            return None;
        }
        let kept = self.policy.retention.of(self.kind())?;
        self.state.completed_at().map(|at| at + kept)
    }

    /// The only place where the state changes.
    pub(crate) fn enter(&mut self, state: State, cause: Cause, moment: &mut Moment<'_>) {
        let step = Move { from: Some(self.kind()), to: state.kind(), at: moment.now, cause };
        self.state = state;
        self.updated_at = moment.now;
        self.history.push(step);
        moment.moves.push(step);
    }

    /// Into the line, at the place its policy gives to jobs that come (back) after their creation.
    pub(crate) fn enter_line(&mut self, cause: Cause, moment: &mut Moment<'_>) {
        let position = match self.policy.requeue_order {
            RequeueOrder::Submission => self.seq.0,
            RequeueOrder::Tail => moment.take_number(),
        };
        self.enter_line_at(position, cause, moment);
    }

    pub(crate) fn enter_line_at(&mut self, position: u64, cause: Cause, moment: &mut Moment<'_>) {
        self.scheduled_at = Some(moment.now);
        self.enter(State::Scheduled { position }, cause, moment);
    }

    /// To its end, from wherever it is. Counters are the caller's business.
    pub(crate) fn end(&mut self, ending: Ending, cause: Cause, moment: &mut Moment<'_>) {
        self.owes = match (self.owes, self.live_dependents) {
            (Owes::Return | Owes::NewLife | Owes::ReturnAndEnd, _) => Owes::ReturnAndEnd,
            (Owes::Nothing | Owes::End, 0) => Owes::Nothing,
            (Owes::Nothing | Owes::End, _) => Owes::End,
        };
        self.enter(ending.state(moment.now), cause, moment);
    }

    /// An end that is nobody's run: cancel, lifetime, an operator, a dependency. An open attempt ends with it.
    pub(crate) fn end_by_decree(&mut self, ending: Ending, failure: Failure, cause: Cause, moment: &mut Moment<'_>) {
        let failure = Arc::new(failure);
        self.close_attempt(AttemptOutcome::Cancelled, Some(Arc::clone(&failure)), None, moment.now);
        self.error = Some(failure);
        self.end(ending, cause, moment);
    }

    pub(crate) fn open_attempt(&mut self, attempt: Attempt) {
        if self.attempts.len() >= ATTEMPTS_MAX {
            self.attempts.remove(0);
        }
        if self.attempts.is_empty() {
            // Most jobs need one.
            self.attempts.reserve_exact(1);
        }
        self.attempts.push(attempt);
    }

    /// Ends the open attempt, if there is one.
    pub(crate) fn close_attempt(
        &mut self,
        outcome: AttemptOutcome,
        error: Option<Arc<Failure>>,
        next_delay: Option<Duration>,
        now: Timestamp,
    ) {
        if let Some(attempt) = self.attempts.last_mut().filter(|attempt| attempt.end.is_none()) {
            attempt.end = Some(AttemptEnd { at: now, outcome, error, next_delay });
            self.attempt_ended_at = Some(now);
        }
    }

    pub(crate) fn restart_lifetime(&mut self, now: Timestamp) {
        self.lifetime_ends_at = self.policy.lifetime.map(|lifetime| now + lifetime);
    }
}
