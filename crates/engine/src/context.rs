//! The context of one command: how it reads and changes records, and how it ends early.

use std::sync::Arc;

use longshore_core::dependency::PendingPropagation;
use longshore_core::history::Transition;
use longshore_core::id::{JobId, QueueName, Seq};
use longshore_core::job::{Job, TransitionContext};
use longshore_core::patch::SettingsPatch;
use longshore_core::refusal::{Invalid, Refusal};
use longshore_core::retry::QueueContext;
use longshore_core::rng::Rng;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCountDelta, counted_state};

use crate::engine::{Effect, Engine};
use crate::index::IndexEntry;
use crate::queue::Queue;
use crate::records::{JobRecords, PayloadSource};

/// Why a command ended early: a rule refused it, or the records returned an error.
#[derive(Debug)]
pub(crate) enum CommandError<E> {
    Refused(Refusal),
    Storage(E),
}

impl<E> From<Refusal> for CommandError<E> {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl<E> From<Invalid> for CommandError<E> {
    fn from(invalid: Invalid) -> Self {
        Self::Refused(invalid.into())
    }
}

/// The execution of one command or tick at one instant.
pub(crate) struct CommandContext<'a, R: JobRecords> {
    pub engine: &'a mut Engine,
    pub records: &'a mut R,
    pub rng: &'a mut dyn Rng,
    pub now: Timestamp,
    pub effects: &'a mut Vec<Effect>,
    /// Transitions of the current job that are not yet in `effects`.
    pub(crate) transitions: Vec<Transition>,
    /// How many records this command has read or changed; the measure of a slice.
    pub(crate) records_touched: usize,
}

impl<'a, R: JobRecords> CommandContext<'a, R> {
    pub(crate) fn new(
        engine: &'a mut Engine,
        records: &'a mut R,
        rng: &'a mut dyn Rng,
        now: Timestamp,
        effects: &'a mut Vec<Effect>,
    ) -> Self {
        Self { engine, records, rng, now, effects, transitions: Vec::new(), records_touched: 0 }
    }

    /// Returns the sequence number of a job.
    pub(crate) fn find(&mut self, id: JobId) -> Result<Seq, CommandError<R::Error>> {
        self.records.seq_of(id).map_err(CommandError::Storage)?.ok_or(CommandError::Refused(Refusal::JobNotFound))
    }

    /// Reads a record without changing it. Returns `None` if there is no such job.
    pub(crate) fn with_job<T>(
        &mut self,
        seq: Seq,
        read: impl FnOnce(&Job) -> T,
    ) -> Result<Option<T>, CommandError<R::Error>> {
        let Some(job) = self.records.checkout(seq).map_err(CommandError::Storage)? else { return Ok(None) };
        let value = read(&job);
        self.records.return_unchanged(job);
        Ok(Some(value))
    }

    /// Applies a verb to a record and updates the index. A refusal leaves both unchanged.
    /// Every change of an existing record goes through here or [`Self::update_with_queue`].
    pub(crate) fn update<T>(
        &mut self,
        seq: Seq,
        verb: impl FnOnce(&mut Job, &mut TransitionContext<'_>) -> Result<T, Refusal>,
    ) -> Result<T, CommandError<R::Error>> {
        self.update_with_queue(seq, |job, _, context| verb(job, context))
    }

    /// Like [`Self::update`], for verbs that depend on the current settings of the job's queue.
    pub(crate) fn update_with_queue<T>(
        &mut self,
        seq: Seq,
        verb: impl FnOnce(&mut Job, QueueContext<'_>, &mut TransitionContext<'_>) -> Result<T, Refusal>,
    ) -> Result<T, CommandError<R::Error>> {
        let record = self.records.checkout(seq).map_err(CommandError::Storage)?;
        let mut job = record.ok_or(CommandError::Refused(Refusal::JobNotFound))?;
        let before = IndexEntry::of(&job);
        let (was_terminal, counted_before) = (job.state.terminal(), counted_state(&job));
        // A copy, because the verb borrows the settings of the queue from the engine.
        let mut next_seq = self.engine.next_seq;
        let mut context = TransitionContext {
            now: self.now,
            rng: self.rng,
            next_seq: &mut next_seq,
            lease_floor: self.engine.options.lease_floor,
            transitions: &mut self.transitions,
        };
        match verb(&mut job, self.engine.queue_context(before.queue()), &mut context) {
            Err(refusal) => {
                self.transitions.clear();
                self.records.return_unchanged(job);
                Err(refusal.into())
            }
            Ok(value) => {
                self.engine.next_seq = next_seq;
                self.engine.reindex(Some(before), Some(IndexEntry::of(&job)));
                self.write_deliveries(&job)?;
                self.emit_effects(&job);
                self.save(job, was_terminal, counted_before)?;
                Ok(value)
            }
        }
    }

    /// Writes a changed record, and what depends on its state: the propagation queue, the counts of
    /// its workflow, and the dependent counts of its dependencies.
    fn save(
        &mut self,
        job: Box<Job>,
        was_terminal: bool,
        counted_before: Option<StateKind>,
    ) -> Result<(), CommandError<R::Error>> {
        let (is_terminal, counted_after) = (job.state.terminal(), counted_state(&job));
        let crossed = is_terminal != was_terminal;
        if crossed && job.pending_propagation != PendingPropagation::Nothing {
            self.engine.enqueue_propagation(job.seq, self.now);
        }
        let dependencies = if crossed { job.dependencies.all() } else { Vec::new() };
        self.records_touched += 1 + dependencies.len();
        let is_revived = was_terminal && (!is_terminal || counted_before != counted_after);
        if let Some(workflow) = job.workflow().filter(|_| is_revived) {
            self.clear_finished_cancel(workflow)?;
        }
        self.add_to_workflow_counts(&job, &MemberCountDelta::moved(counted_before, counted_after))?;
        self.records.put(job).map_err(CommandError::Storage)?;
        let change = if is_terminal { DependentChange::Removed } else { DependentChange::Added };
        self.adjust_dependent_counts(dependencies.into_iter().map(|id| (id, 1)), change)
    }

    /// Stores and indexes a new record.
    pub(crate) fn add(&mut self, job: Box<Job>, payload: PayloadSource) -> Result<(), CommandError<R::Error>> {
        self.engine.reindex(None, Some(IndexEntry::of(&job)));
        self.write_deliveries(&job)?;
        self.emit_effects(&job);
        self.add_to_workflow_counts(&job, &MemberCountDelta::created(job.kind()))?;
        self.records.insert(job, payload).map_err(CommandError::Storage)
    }

    /// Adds a change of one member to the counts of its workflow.
    pub(crate) fn add_to_workflow_counts(
        &mut self,
        job: &Job,
        change: &MemberCountDelta,
    ) -> Result<(), CommandError<R::Error>> {
        match job.workflow() {
            Some(workflow) if !change.is_nothing() => {
                self.records.tally(workflow, change).map_err(CommandError::Storage)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Converts the transitions of the last verb to effects.
    fn emit_effects(&mut self, job: &Job) {
        let (Job { id, seq, queue, job_type, .. }, workflow) = (job, job.workflow());
        self.effects.extend(self.transitions.drain(..).map(|step| Effect::Moved {
            id: *id,
            seq: *seq,
            queue: queue.clone(),
            job_type: job_type.clone(),
            workflow,
            step,
            since: phase_start(job, &step),
        }));
    }

    /// Adds to, or subtracts from, the number of unfinished dependents of each dependency.
    /// Retention keeps a record while that number is above zero.
    pub(crate) fn adjust_dependent_counts(
        &mut self,
        dependencies: impl IntoIterator<Item = (JobId, u32)>,
        change: DependentChange,
    ) -> Result<(), CommandError<R::Error>> {
        for (id, number) in dependencies {
            let Some(seq) = self.records.seq_of(id).map_err(CommandError::Storage)? else { continue };
            let Some(mut job) = self.records.checkout(seq).map_err(CommandError::Storage)? else { continue };
            job.unfinished_dependents = match change {
                DependentChange::Added => job.unfinished_dependents.saturating_add(number),
                DependentChange::Removed => job.unfinished_dependents.saturating_sub(number),
            };
            if job.unfinished_dependents == 0 && job.pending_propagation == PendingPropagation::End {
                // Without unfinished dependents there is no job to propagate the end to.
                job.pending_propagation = PendingPropagation::Nothing;
            }
            self.records.put(job).map_err(CommandError::Storage)?;
        }
        Ok(())
    }

    /// Returns the queue of a submission: the existing one, or the one that the submission would
    /// create.
    pub(crate) fn queue_for_submit(&self, name: &QueueName) -> Result<Arc<Queue>, Refusal> {
        if let Some(queue) = self.engine.queues.get(name) {
            return match queue.deleting {
                None => Ok(Arc::clone(queue)),
                Some(_) => Err(Refusal::Illegal(BEING_DELETED)),
            };
        }
        if !self.engine.options.auto_queues {
            return Err(Refusal::QueueNotFound);
        }
        Ok(Arc::new(Queue::new(name.clone(), self.engine.options.default_profile, SettingsPatch::default())?))
    }
}

/// Returns when the wait began that a claim ends, or the attempt that this transition ends.
fn phase_start(job: &Job, step: &Transition) -> Option<Timestamp> {
    match (step.from, step.to) {
        (Some(StateKind::Scheduled), StateKind::Running) => job.scheduled_at,
        (Some(StateKind::Running), to) if to != StateKind::Running => job.started_at,
        (Some(_) | None, _) => None,
    }
}

/// The reason to refuse a command for a queue whose deletion has not finished.
pub(crate) const BEING_DELETED: &str = "the queue is being deleted";

/// Whether an unfinished dependent was added or removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DependentChange {
    Added,
    Removed,
}

/// Converts a refusal to `None`: work that a tick finds may concern a record that no longer exists.
pub(crate) fn ignore_missing<T, E>(result: Result<T, CommandError<E>>) -> Result<Option<T>, E> {
    Ok(split_refusal(result)?.ok())
}

/// Separates a refusal, which is a response, from an error of the records.
pub(crate) fn split_refusal<T, E>(result: Result<T, CommandError<E>>) -> Result<Result<T, Refusal>, E> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(CommandError::Refused(refusal)) => Ok(Err(refusal)),
        Err(CommandError::Storage(error)) => Err(error),
    }
}
