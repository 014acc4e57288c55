//! The whole-queue machine: all jobs of all queues, one command at a time.
//!
//! The engine holds ordering entries only and the queues' settings; records live behind [`Records`]. Everything it holds can be
//! rebuilt from records ([`Engine::rebuild`]). It never waits, never reads a clock and never fails by itself: a refusal is an answer, and
//! `Err` is an error of the records.

mod admin;
mod cascade;
mod claim;
mod command;
mod gap;
mod index;
mod memory;
mod propagation_queue;
mod queue;
mod records;
mod settle;
mod submit;
mod tick;
mod undo_log;
mod workflow;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use claim::{ClaimRequest, Claimed};
pub use command::{AdminCommand, AdminResponse, Command, ExecutionContext, Heartbeat, Response, Settlement};
pub use index::{ReadyKey, StateCounts, TimerKind, count_of, ordering};
pub use memory::MemoryRecords;
pub use queue::{DeleteQueue, Queue, QueueDeleteMode};
pub use records::{JobRecords, KeyEntry, PayloadSource, PruneTarget, ScopedIdempotencyKey};
pub use submit::{BatchRefusal, Submission, SubmitRequest, Submitted, WorkflowTarget};
pub use tick::Ticked;

use crate::dependency::PendingPropagation;
use crate::history::Transition;
use crate::id::{JobId, JobType, LeaseVersion, QueueName, Seq, WorkflowId};
use crate::job::{IndexedFields, Job, TransitionContext};
use crate::limits::CASCADE_JOBS_MAX;
use crate::patch::SettingsPatch;
use crate::profile::Profile;
use crate::refusal::{Invalid, Refusal};
use crate::retry::QueueContext;
use crate::rng::Rng;
use crate::state::StateKind;
use crate::time::Timestamp;
use crate::workflow::{MemberCountDelta, counted_state};

use index::{Entry, Index};
use propagation_queue::{Propagation, PropagationQueue};
use undo_log::UndoLog;

#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// Shared, so that an engine over few jobs is cheap to make.
    queues: Arc<BTreeMap<QueueName, Arc<Queue>>>,
    index: Index,
    owed: PropagationQueue,
    deleting_queues: BTreeSet<QueueName>,
    /// Workflows to all of whose members something is being done.
    active_operations: BTreeSet<WorkflowId>,
    next_number: u64,
    options: Options,
    journal: UndoLog,
}

/// How an engine treats what is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of queues that a submission creates, and of those that are put without one.
    pub default_profile: Profile,
    /// Whether a submission may create its queue.
    pub auto_queues: bool,
    /// Jobs that one command may touch beyond its own; the rest is done by ticks.
    pub cascade_jobs_max: usize,
    /// Lease versions are above this.
    pub lease_floor: LeaseVersion,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            default_profile: Profile::Standard,
            auto_queues: true,
            cascade_jobs_max: CASCADE_JOBS_MAX,
            lease_floor: LeaseVersion(0),
        }
    }
}

/// What the outside may want to hear once the change is safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A job moved from state to state; into scheduled means that its queue has work.
    Moved { id: JobId, seq: Seq, queue: QueueName, job_type: JobType, workflow: Option<WorkflowId>, step: Transition },
    /// The queue may have work for a waiting claim although no job moved.
    Claimable(QueueName),
}

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
    moves: Vec<Transition>,
    /// Records changed so far.
    records_touched: usize,
}

impl Engine {
    /// An engine without jobs, with the queue `default`.
    pub fn new(options: Options) -> Self {
        let mut engine = Self {
            queues: Arc::default(),
            index: Index::default(),
            owed: PropagationQueue::default(),
            deleting_queues: BTreeSet::new(),
            active_operations: BTreeSet::new(),
            next_number: 1,
            journal: UndoLog::default(),
            options: Options { cascade_jobs_max: options.cascade_jobs_max.max(1), ..options },
        };
        engine.ensure_default();
        engine
    }

    /// The same engine again, from what the records say. `jobs` need only hold the live ones ([`Job::live`]); jobs that ended are
    /// told by their numbers in `ended`. `next_number` is past the sequence number of every job that is not among `jobs`.
    pub fn rebuild<'a>(
        options: Options,
        queues: impl IntoIterator<Item = Queue>,
        jobs: impl IntoIterator<Item = &'a Job>,
        ended: impl IntoIterator<Item = (QueueName, StateKind, u64)>,
        next_number: u64,
    ) -> Self {
        let mut engine = Self::new(options);
        for queue in queues {
            if queue.deleting.is_some() {
                engine.deleting_queues.insert(queue.name.clone());
            }
            Arc::make_mut(&mut engine.queues).insert(queue.name.clone(), Arc::new(queue));
        }
        engine.next_number = next_number.max(1);
        let jobs: Vec<IndexedFields<'a>> = jobs.into_iter().map(Job::outline).collect();
        engine.bulk_load(&jobs);
        for (queue, state, jobs) in ended {
            engine.index.add_ended(&queue, state, jobs);
        }
        engine
    }

    /// An engine over some of the jobs of a store that holds them all elsewhere: it knows the queues, and the jobs that it is then
    /// given with [`Engine::admit`] and [`Engine::offer_again`]. `next_number` is the first of the numbers that it may give.
    pub fn partial(options: Options, queues: Arc<BTreeMap<QueueName, Arc<Queue>>>, next_number: u64) -> Self {
        Self {
            deleting_queues: queues
                .values()
                .filter(|queue| queue.deleting.is_some())
                .map(|queue| queue.name.clone())
                .collect(),
            queues,
            index: Index::default(),
            owed: PropagationQueue::default(),
            active_operations: BTreeSet::new(),
            next_number,
            journal: UndoLog::default(),
            options: Options { cascade_jobs_max: options.cascade_jobs_max.max(1), ..options },
        }
    }

    /// A running job that was admitted, whose lease has expired, and which the next claim may take over: it stands in line, as after the
    /// tick that found it, and its timer has nothing more to say.
    pub fn restore_reclaimable(&mut self, job: &IndexedFields<'_>) {
        let entry = Entry::from_fields(job);
        if let Some(timer) = entry.timer() {
            self.index.drop_timer(timer);
        }
        self.index.mark_reclaimable(&entry);
    }

    /// How far this job's news have come: dependents up to this one have heard them.
    pub fn propagation_cursor(&self, of: Seq) -> Option<Seq> {
        self.owed.told_by(of)
    }

    /// Goes on with the news of a job that was admitted where an earlier engine had stopped.
    pub fn resume_propagation(&mut self, of: Seq, told: Seq) {
        if let Some(place) = self.owed.key_of(of) {
            self.owed.set(place, Some(Propagation { of, cursor: told }));
        }
    }

    /// Whether this running job stands in line for the next claim, its lease having expired.
    pub fn is_reclaimable(&self, job: &Job) -> bool {
        self.index.offers(&Entry::of(job))
    }

    /// Jobs of a queue beyond those that the engine was given: per state, and how many of the pending ones are held.
    pub fn add_counts(&mut self, queue: &QueueName, counts: &StateCounts, held: u64) {
        self.index.add_counts(queue, counts, held);
    }

    /// All queues, those on their way out included.
    pub fn all_queues(&self) -> &Arc<BTreeMap<QueueName, Arc<Queue>>> {
        &self.queues
    }

    /// The next number to be given; for a store that gives numbers in portions.
    pub fn set_next_seq(&mut self, next_number: u64) {
        self.next_number = next_number;
    }

    /// Takes in one live record, in the course of a rebuild.
    pub fn index_job(&mut self, job: &IndexedFields<'_>) {
        let entry = Entry::from_fields(job);
        let last = entry.position().unwrap_or(0).max(job.seq.0);
        self.next_number = self.next_number.max(last.saturating_add(1));
        self.index.replace(None, Some(&entry));
        if job.pending_propagation != PendingPropagation::Nothing {
            // Who ended first decides first, also after a restart.
            let place = self.owed.next_key(job.updated_at);
            self.owed.set(place, Some(Propagation { of: job.seq, cursor: Seq(0) }));
        }
    }

    /// Takes in a workflow with an errand that is not done, in the course of a rebuild.
    pub fn resume_operation(&mut self, workflow: WorkflowId) {
        self.active_operations.insert(workflow);
    }

    fn ensure_default(&mut self) {
        let name = QueueName::new(Queue::DEFAULT);
        let queue = name.and_then(|name| Queue::new(name, self.options.default_profile, SettingsPatch::default()));
        // Both are constants that the tests know to be good.
        if let Ok(queue) = queue {
            Arc::make_mut(&mut self.queues).insert(queue.name.clone(), Arc::new(queue));
        }
    }

    pub fn options(&self) -> Options {
        self.options
    }

    /// A queue that takes part; one that is being deleted does not.
    pub fn queue(&self, name: &QueueName) -> Option<&Arc<Queue>> {
        self.queues.get(name).filter(|queue| queue.deleting.is_none())
    }

    pub fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues.values().filter(|queue| queue.deleting.is_none())
    }

    /// Jobs per state, kept by increments.
    pub fn counts(&self, queue: &QueueName) -> StateCounts {
        self.index.counts(queue)
    }

    /// When to tick next: at once while something is done in slices, else when the next timer of a job falls due. Retention is the records' business.
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        if self.has_pending_work() { Some(now) } else { self.index.next_timer().map(|(at, ..)| at) }
    }

    /// Whether something is done in slices, and the last has not been yet.
    pub fn has_pending_work(&self) -> bool {
        !(self.deleting_queues.is_empty() && self.active_operations.is_empty() && self.owed.is_empty())
    }

    /// Since when the scheduled job that has waited longest has been in line.
    pub fn oldest_scheduled_at(&self, queue: &QueueName) -> Option<Timestamp> {
        self.index.oldest_scheduled_at(queue)
    }

    /// Past every number that was ever given to a job or a place in line.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    fn queue_context(&self, queue: &QueueName) -> QueueContext<'_> {
        self.queue(queue).map_or(QueueContext::Deleted, |queue| QueueContext::Exists(&queue.intake))
    }
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
