//! The record of a job, and the primitives with which transitions change it.

use std::sync::Arc;

use bytes::Bytes;

pub use crate::context::TransitionContext;

use crate::attempt::{Attempt, AttemptEnd, AttemptOutcome};
use crate::dependency::{Dependencies, PendingPropagation};
use crate::failure::Failure;
use crate::history::{Cause, History, Transition};
use crate::id::{JobId, JobType, LeaseToken, LeaseVersion, QueueName, Seq, WorkflowId};
use crate::limits::ATTEMPTS_MAX;
use crate::policy::{IdempotencyScope, Policy, RequeueOrder};
use crate::priority::Priority;
use crate::schedule::JobSchedule;
use crate::settle::OutcomeKind;
use crate::state::{State, StateKind, TerminalState};
use crate::tags::Tags;
use crate::time::{Duration, Timestamp};
use crate::trace_context::TraceParent;
use crate::workflow::Membership;

/// Record of a job: everything but its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub seq: Seq,
    pub queue: QueueName,
    pub job_type: JobType,
    pub state: State,
    pub counters: Counters,
    pub lease_version: LeaseVersion,
    /// Priority that the client asked for.
    pub priority: Priority,
    /// Priority of its most urgent dependency, fixed at submission.
    pub inherited_priority: Priority,
    pub policy: Arc<Policy>,
    pub tags: Tags,
    pub correlation_id: Option<Arc<str>>,
    pub callback_url: Option<Arc<str>>,
    pub idempotency: Option<IdempotencyKey>,
    pub external_id: Option<Arc<str>>,
    pub created_at: Timestamp,
    /// Time of the last transition.
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
    /// Number of unfinished jobs that depend on this one. The record is kept until it is zero.
    pub unfinished_dependents: u32,
    /// Event that has not been delivered to all dependents yet.
    pub pending_propagation: PendingPropagation,
    pub parent: Option<JobId>,
    pub membership: Option<Membership>,
    pub requeued_from: Option<JobId>,
    pub requeued_as: Option<JobId>,
    /// Schedule that submitted the job.
    pub schedule: Option<Box<JobSchedule>>,
    /// Span that has submitted the job. Boxed: most jobs have none.
    pub traceparent: Option<Box<TraceParent>>,
    /// Settlement that ended the last lease: a repetition gets the same response.
    pub last_settlement: Option<(LeaseToken, OutcomeKind)>,
    pub attempts: Vec<Attempt>,
    pub history: History,
}

/// Fields of a live job that the index of the engine needs.
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

/// Independent counters: each specification counts something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub starts: u32,
    pub failures: u32,
    pub retries_scheduled: u32,
    pub requeues: u32,
    pub reclaims: u32,
}

/// An idempotency key with its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: Arc<str>,
    pub scope: IdempotencyScope,
    /// Type at submission: a later change of type does not change the scope.
    pub job_type: JobType,
}

impl Job {
    /// Returns the more urgent of its own and its inherited priority.
    pub fn effective_priority(&self) -> Priority {
        self.priority.more_urgent(self.inherited_priority)
    }

    /// Returns the fields that the index needs.
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

    /// Whether the engine must keep the job in its index: it is not terminal, or an event must
    /// still be delivered to its dependents.
    pub fn is_live(&self) -> bool {
        !self.state.terminal() || self.pending_propagation != PendingPropagation::Nothing
    }

    /// Returns when the record may be pruned; `None` while an unfinished job depends on it.
    pub fn prune_at(&self) -> Option<Timestamp> {
        if self.is_live() || self.unfinished_dependents > 0 {
            return None;
        }
        let retention = self.policy.retention.of(self.kind())?;
        self.state.completed_at().map(|at| at + retention)
    }

    /// Changes the state and records the transition. All state changes go through here.
    pub(crate) fn transition_to(&mut self, state: State, cause: Cause, context: &mut TransitionContext<'_>) {
        let transition = Transition { from: Some(self.kind()), to: state.kind(), at: context.now, cause };
        self.state = state;
        self.updated_at = context.now;
        self.history.push(transition);
        context.transitions.push(transition);
    }

    /// Makes the job ready, at the position that `requeue_order` gives.
    pub(crate) fn make_ready(&mut self, cause: Cause, context: &mut TransitionContext<'_>) {
        let position = match self.policy.requeue_order {
            RequeueOrder::Submission => self.seq.0,
            RequeueOrder::Tail => context.next_seq(),
        };
        self.make_ready_at(position, cause, context);
    }

    /// Makes the job ready at a position.
    pub(crate) fn make_ready_at(&mut self, position: u64, cause: Cause, context: &mut TransitionContext<'_>) {
        self.scheduled_at = Some(context.now);
        self.transition_to(State::Scheduled { position }, cause, context);
    }

    /// Moves the job to a terminal state. The caller updates the counters.
    pub(crate) fn finish(&mut self, ending: TerminalState, cause: Cause, context: &mut TransitionContext<'_>) {
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
        self.transition_to(ending.state(context.now), cause, context);
    }

    /// Ends the job outside a run: by cancel, lifetime, operator or dependency. Closes an open
    /// attempt.
    pub(crate) fn terminate(
        &mut self,
        ending: TerminalState,
        failure: Failure,
        cause: Cause,
        context: &mut TransitionContext<'_>,
    ) {
        let failure = Arc::new(failure);
        self.close_attempt(AttemptOutcome::Cancelled, Some(Arc::clone(&failure)), None, context.now);
        self.error = Some(failure);
        self.finish(ending, cause, context);
    }

    /// Adds an attempt; drops the oldest beyond `ATTEMPTS_MAX`.
    pub(crate) fn open_attempt(&mut self, attempt: Attempt) {
        if self.attempts.len() >= ATTEMPTS_MAX {
            self.attempts.remove(0);
        }
        if self.attempts.is_empty() {
            // Most jobs have one attempt.
            self.attempts.reserve_exact(1);
        }
        self.attempts.push(attempt);
    }

    /// Closes the open attempt, if there is one.
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

    /// Starts the lifetime again.
    pub(crate) fn restart_lifetime(&mut self, now: Timestamp) {
        self.lifetime_ends_at = self.policy.lifetime.map(|lifetime| now + lifetime);
    }
}
