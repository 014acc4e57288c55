//! The engine: every queue, its settings and the order of its jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longshore_core::dependency::PendingPropagation;
use longshore_core::history::Transition;
use longshore_core::id::{JobId, JobType, LeaseVersion, QueueName, Seq, WorkflowId};
use longshore_core::job::{IndexedFields, Job};
use longshore_core::limits::CASCADE_JOBS_MAX;
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_core::retry::QueueContext;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;

use crate::index::{Entry, Index, StateCounts};
use crate::propagation_queue::{Propagation, PropagationQueue};
use crate::queue::Queue;
use crate::undo_log::UndoLog;

#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// Shared, so that an engine over few jobs is cheap to make.
    pub(crate) queues: Arc<BTreeMap<QueueName, Arc<Queue>>>,
    pub(crate) index: Index,
    pub(crate) owed: PropagationQueue,
    pub(crate) deleting_queues: BTreeSet<QueueName>,
    /// Workflows to all of whose members something is being done.
    pub(crate) active_operations: BTreeSet<WorkflowId>,
    pub(crate) next_number: u64,
    pub(crate) options: EngineOptions,
    pub(crate) journal: UndoLog,
}

/// How an engine treats what is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Of queues that a submission creates, and of those that are put without one.
    pub default_profile: Profile,
    /// Whether a submission may create its queue.
    pub auto_queues: bool,
    /// Jobs that one command may touch beyond its own; the rest is done by ticks.
    pub cascade_jobs_max: usize,
    /// Lease versions are above this.
    pub lease_floor: LeaseVersion,
}

impl Default for EngineOptions {
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

impl Effect {
    /// Returns the type of the job and its transition, if a job changed its state.
    pub fn transition(&self) -> Option<(&JobType, &Transition)> {
        match self {
            Self::Moved { job_type, step, .. } => Some((job_type, step)),
            Self::Claimable(_) => None,
        }
    }
}

impl Engine {
    /// An engine without jobs, with the queue `default`.
    pub fn new(options: EngineOptions) -> Self {
        let mut engine = Self {
            queues: Arc::default(),
            index: Index::default(),
            owed: PropagationQueue::default(),
            deleting_queues: BTreeSet::new(),
            active_operations: BTreeSet::new(),
            next_number: 1,
            journal: UndoLog::default(),
            options: EngineOptions { cascade_jobs_max: options.cascade_jobs_max.max(1), ..options },
        };
        engine.ensure_default();
        engine
    }

    /// The same engine again, from what the records say. `jobs` need only hold the live ones ([`Job::live`]); jobs that ended are
    /// told by their numbers in `ended`. `next_number` is past the sequence number of every job that is not among `jobs`.
    pub fn rebuild<'a>(
        options: EngineOptions,
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
    pub fn partial(options: EngineOptions, queues: Arc<BTreeMap<QueueName, Arc<Queue>>>, next_number: u64) -> Self {
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
            options: EngineOptions { cascade_jobs_max: options.cascade_jobs_max.max(1), ..options },
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

    pub fn options(&self) -> EngineOptions {
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

    pub(crate) fn queue_context(&self, queue: &QueueName) -> QueueContext<'_> {
        self.queue(queue).map_or(QueueContext::Deleted, |queue| QueueContext::Exists(&queue.intake))
    }
}
