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
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCountDelta, counted_state};

use crate::engine::{Effect, Engine};
use crate::index::Entry;
use crate::queue::Queue;
use crate::records::{JobRecords, PayloadSource};

/// Why a command stopped: the rules said no, or the records failed.
#[derive(Debug)]
pub(crate) enum CommandError<E> {
    Refused(Refusal),
    Broken(E),
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

/// One command, or one tick, at one instant.
pub(crate) struct CommandContext<'a, R: JobRecords> {
    pub engine: &'a mut Engine,
    pub records: &'a mut R,
    pub rng: &'a mut dyn Rng,
    pub now: Timestamp,
    pub effects: &'a mut Vec<Effect>,
    pub(crate) moves: Vec<Transition>,
    /// Records changed so far.
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
        Self { engine, records, rng, now, effects, moves: Vec::new(), records_touched: 0 }
    }

    pub(crate) fn find(&mut self, id: JobId) -> Result<Seq, CommandError<R::Error>> {
        self.records.seq_of(id).map_err(CommandError::Broken)?.ok_or(CommandError::Refused(Refusal::JobNotFound))
    }

    /// Looks at a record.
    pub(crate) fn with_job<T>(
        &mut self,
        seq: Seq,
        look: impl FnOnce(&Job) -> T,
    ) -> Result<Option<T>, CommandError<R::Error>> {
        let Some(job) = self.records.checkout(seq).map_err(CommandError::Broken)? else { return Ok(None) };
        let seen = look(&job);
        self.records.return_unchanged(job);
        Ok(Some(seen))
    }

    /// The one way to change a record: take it, let a verb judge it, put it back, and file it anew. A refusal changes nothing.
    pub(crate) fn update<T>(
        &mut self,
        seq: Seq,
        verb: impl FnOnce(&mut Job, &mut TransitionContext<'_>) -> Result<T, Refusal>,
    ) -> Result<T, CommandError<R::Error>> {
        self.update_with_queue(seq, |job, _, moment| verb(job, moment))
    }

    /// The same for verbs that depend on the job's queue as it is now.
    pub(crate) fn update_with_queue<T>(
        &mut self,
        seq: Seq,
        verb: impl FnOnce(&mut Job, QueueContext<'_>, &mut TransitionContext<'_>) -> Result<T, Refusal>,
    ) -> Result<T, CommandError<R::Error>> {
        let taken = self.records.checkout(seq).map_err(CommandError::Broken)?;
        let mut job = taken.ok_or(CommandError::Refused(Refusal::JobNotFound))?;
        let before = Entry::of(&job);
        let (was_terminal, was_counted) = (job.state.terminal(), counted_state(&job));
        // The counter is lent out while the engine is being read.
        let mut next_number = self.engine.next_number;
        let mut moment = TransitionContext {
            now: self.now,
            rng: self.rng,
            next_seq: &mut next_number,
            lease_floor: self.engine.options.lease_floor,
            transitions: &mut self.moves,
        };
        let verdict = verb(&mut job, self.engine.queue_context(before.queue()), &mut moment);
        match verdict {
            Err(refusal) => {
                self.moves.clear();
                self.records.return_unchanged(job);
                Err(refusal.into())
            }
            Ok(answer) => {
                self.engine.next_number = next_number;
                let now_terminal = job.state.terminal();
                self.engine.reindex(Some(before), Some(Entry::of(&job)));
                self.emit_effects(&job);
                if now_terminal != was_terminal && job.pending_propagation != PendingPropagation::Nothing {
                    self.engine.enqueue_propagation(seq, self.now);
                }
                let dependencies = if was_terminal == now_terminal { Vec::new() } else { job.dependencies.all() };
                self.records_touched += 1 + dependencies.len();
                let comes_back = was_terminal && (!now_terminal || was_counted != counted_state(&job));
                if let Some(membership) = job.membership.as_ref().filter(|_| comes_back) {
                    self.clear_finished_cancel(membership.workflow)?;
                }
                self.tally(&job, &MemberCountDelta::moved(was_counted, counted_state(&job)))?;
                self.records.put(job).map_err(CommandError::Broken)?;
                let life = if now_terminal { DependentChange::Ended } else { DependentChange::Began };
                self.adjust_dependent_counts(dependencies.into_iter().map(|id| (id, 1)), life)?;
                Ok(answer)
            }
        }
    }

    /// Files a record that was just made.
    pub(crate) fn add(&mut self, job: Box<Job>, payload: PayloadSource) -> Result<(), CommandError<R::Error>> {
        self.engine.reindex(None, Some(Entry::of(&job)));
        self.emit_effects(&job);
        self.tally(&job, &MemberCountDelta::created(job.kind()))?;
        self.records.insert(job, payload).map_err(CommandError::Broken)
    }

    /// Keeps the sums of its workflow in step with a member.
    pub(crate) fn tally(&mut self, job: &Job, change: &MemberCountDelta) -> Result<(), CommandError<R::Error>> {
        match &job.membership {
            Some(membership) if !change.is_nothing() => {
                self.records.tally(membership.workflow, change).map_err(CommandError::Broken)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Turns the moves of the last verb into effects.
    fn emit_effects(&mut self, job: &Job) {
        let Job { id, seq, queue, job_type, membership, .. } = job;
        let workflow = membership.as_ref().map(|membership| membership.workflow);
        self.effects.extend(self.moves.drain(..).map(|step| Effect::Moved {
            id: *id,
            seq: *seq,
            queue: queue.clone(),
            job_type: job_type.clone(),
            workflow,
            step,
        }));
    }

    /// Tells dependencies how many dependents of theirs began or ended to live, so that their records stay while they are needed.
    pub(crate) fn adjust_dependent_counts(
        &mut self,
        dependencies: impl IntoIterator<Item = (JobId, u32)>,
        life: DependentChange,
    ) -> Result<(), CommandError<R::Error>> {
        for (id, number) in dependencies {
            let Some(seq) = self.records.seq_of(id).map_err(CommandError::Broken)? else { continue };
            let Some(mut job) = self.records.checkout(seq).map_err(CommandError::Broken)? else { continue };
            job.unfinished_dependents = match life {
                DependentChange::Began => job.unfinished_dependents.saturating_add(number),
                DependentChange::Ended => job.unfinished_dependents.saturating_sub(number),
            };
            if job.unfinished_dependents == 0 && job.pending_propagation == PendingPropagation::End {
                // Nobody is left who would want to know.
                job.pending_propagation = PendingPropagation::Nothing;
            }
            self.records.put(job).map_err(CommandError::Broken)?;
        }
        Ok(())
    }

    /// The policy and intake that a submission to this queue meets, whether the queue exists or would be created.
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

pub(crate) const BEING_DELETED: &str = "the queue is being deleted";

/// Whether a dependent started or stopped counting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DependentChange {
    Began,
    Ended,
}

/// For what the clock does: a record that is not there any more is no news.
pub(crate) fn ignore_missing<T, E>(result: Result<T, CommandError<E>>) -> Result<Option<T>, E> {
    Ok(split_refusal(result)?.ok())
}

/// Splits what the rules said from what the records said.
pub(crate) fn split_refusal<T, E>(result: Result<T, CommandError<E>>) -> Result<Result<T, Refusal>, E> {
    match result {
        Ok(answer) => Ok(Ok(answer)),
        Err(CommandError::Refused(refusal)) => Ok(Err(refusal)),
        Err(CommandError::Broken(error)) => Err(error),
    }
}
