//! The record of a job, and the few ways in which verbs may change it.

use std::sync::Arc;

use bytes::Bytes;

use crate::attempt::{Attempt, AttemptEnd, AttemptOutcome};
use crate::dependency::{Dependencies, PendingPropagation};
use crate::failure::Failure;
use crate::history::{Cause, History, Transition};
use crate::id::{JobId, JobType, LeaseToken, LeaseVersion, QueueName, Seq, WorkflowId};
use crate::limits::ATTEMPTS_MAX;
use crate::policy::{IdempotencyScope, Policy, RequeueOrder};
use crate::priority::Priority;
use crate::rng::Rng;
use crate::settle::OutcomeKind;
use crate::state::{State, StateKind, TerminalState};
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
    pub unfinished_dependents: u32,
    /// What its dependents have not all been told yet.
    pub pending_propagation: PendingPropagation,
    pub parent: Option<JobId>,
    pub membership: Option<Membership>,
    pub requeued_from: Option<JobId>,
    pub requeued_as: Option<JobId>,
    /// The settlement that ended the last lease, so that a repetition is recognised.
    pub last_settlement: Option<(LeaseToken, OutcomeKind)>,
    pub attempts: Vec<Attempt>,
    pub history: History,
}

/// What the order of jobs depends on: all that a rebuild has to know of a live record.
#[derive(Clone, Copy, Debug)]
pub struct IndexedFields<'a> {
    pub seq: Seq,
    pub queue: &'a QueueName,
    pub job_type: &'a JobType,
    pub effective_priority: Priority,
    pub state: &'a State,
    pub policy: &'a Policy,
    pub scheduled_at: Option<Timestamp>,
    pub lifetime_ends_at: Option<Timestamp>,
    pub pending_propagation: PendingPropagation,
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
pub struct TransitionContext<'a> {
    pub now: Timestamp,
    pub rng: &'a mut dyn Rng,
    /// One counter serves sequence numbers and places in line, so that they compare.
    pub next_seq: &'a mut u64,
    /// Lease versions given from now on are above this: raised when a store is restored from a backup, so that no version is given twice.
    pub lease_floor: LeaseVersion,
    pub transitions: &'a mut Vec<Transition>,
}

impl TransitionContext<'_> {
    pub fn next_seq(&mut self) -> u64 {
        let number = *self.next_seq;
        *self.next_seq += 1;
        number
    }
}

impl Job {
    pub fn effective_priority(&self) -> Priority {
        self.priority.more_urgent(self.inherited_priority)
    }

    pub fn outline(&self) -> IndexedFields<'_> {
        IndexedFields {
            seq: self.seq,
            queue: &self.queue,
            job_type: &self.job_type,
            effective_priority: self.effective_priority(),
            state: &self.state,
            policy: &self.policy,
            scheduled_at: self.scheduled_at,
            lifetime_ends_at: self.lifetime_ends_at,
            pending_propagation: self.pending_propagation,
            updated_at: self.updated_at,
        }
    }

    pub fn kind(&self) -> StateKind {
        self.state.kind()
    }

    /// Returns the workflow of which this job is a member.
    pub fn workflow(&self) -> Option<WorkflowId> {
        self.membership.as_ref().map(|membership| membership.workflow)
    }

    /// The record takes part in the life of the queue: it is not terminal, or others still have to hear of its end.
    pub fn is_live(&self) -> bool {
        !self.state.terminal() || self.pending_propagation != PendingPropagation::Nothing
    }

    /// When the record may go; never while somebody alive depends on it.
    pub fn prune_at(&self) -> Option<Timestamp> {
        if self.is_live() || self.unfinished_dependents > 0 {
            return None;
        }
        let kept = self.policy.retention.of(self.kind())?;
        self.state.completed_at().map(|at| at + kept)
    }

    /// The only place where the state changes.
    pub(crate) fn transition_to(&mut self, state: State, cause: Cause, moment: &mut TransitionContext<'_>) {
        let step = Transition { from: Some(self.kind()), to: state.kind(), at: moment.now, cause };
        self.state = state;
        self.updated_at = moment.now;
        self.history.push(step);
        moment.transitions.push(step);
    }

    /// Into the line, at the place its policy gives to jobs that come (back) after their creation.
    pub(crate) fn make_ready(&mut self, cause: Cause, moment: &mut TransitionContext<'_>) {
        let position = match self.policy.requeue_order {
            RequeueOrder::Submission => self.seq.0,
            RequeueOrder::Tail => moment.next_seq(),
        };
        self.make_ready_at(position, cause, moment);
    }

    pub(crate) fn make_ready_at(&mut self, position: u64, cause: Cause, moment: &mut TransitionContext<'_>) {
        self.scheduled_at = Some(moment.now);
        self.transition_to(State::Scheduled { position }, cause, moment);
    }

    /// To its end, from wherever it is. Counters are the caller's business.
    pub(crate) fn finish(&mut self, ending: TerminalState, cause: Cause, moment: &mut TransitionContext<'_>) {
        self.pending_propagation = match (self.pending_propagation, self.unfinished_dependents) {
            (
                PendingPropagation::Return
                | PendingPropagation::RestartedWithWorkflow
                | PendingPropagation::RevivedThenFinished,
                _,
            ) => PendingPropagation::RevivedThenFinished,
            (PendingPropagation::Nothing | PendingPropagation::End, 0) => PendingPropagation::Nothing,
            (PendingPropagation::Nothing | PendingPropagation::End, _) => PendingPropagation::End,
        };
        self.transition_to(ending.state(moment.now), cause, moment);
    }

    /// An end that is nobody's run: cancel, lifetime, an operator, a dependency. An open attempt ends with it.
    pub(crate) fn terminate(
        &mut self,
        ending: TerminalState,
        failure: Failure,
        cause: Cause,
        moment: &mut TransitionContext<'_>,
    ) {
        let failure = Arc::new(failure);
        self.close_attempt(AttemptOutcome::Cancelled, Some(Arc::clone(&failure)), None, moment.now);
        self.error = Some(failure);
        self.finish(ending, cause, moment);
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
