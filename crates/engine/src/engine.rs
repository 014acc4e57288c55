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
use longshore_core::{QueueChange, ScheduleChange};

use crate::index::{Index, IndexEntry, StateCounts};
use crate::outbox::Subscriptions;
use crate::propagation_queue::{Propagation, PropagationQueue};
use crate::queue::Queue;
use crate::undo_log::UndoLog;

/// The state of all queues between two commands.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// Shared: a store that creates an engine per transaction must not copy the settings.
    pub(crate) queues: Arc<BTreeMap<QueueName, Arc<Queue>>>,
    pub(crate) index: Index,
    pub(crate) propagation: PropagationQueue,
    pub(crate) deleting_queues: BTreeSet<QueueName>,
    /// Workflows with a cancel or a retry that has not reached all members yet.
    pub(crate) active_operations: BTreeSet<WorkflowId>,
    /// The next sequence number of a job or workflow, or position in a queue.
    pub(crate) next_seq: u64,
    pub(crate) options: EngineOptions,
    pub(crate) undo_log: UndoLog,
    /// Which endpoints want which transitions. Shared, like the queues.
    pub(crate) subscriptions: Arc<Subscriptions>,
}

/// Settings of the engine itself; the settings of a queue are in [`Queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// The profile of a queue that is created without one.
    pub default_profile: Profile,
    /// Whether a submission may create its queue.
    pub auto_queues: bool,
    /// How many further jobs one command may change; ticks change the rest.
    pub cascade_jobs_max: usize,
    /// Every new lease version is greater than this one.
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

/// An event of a command, to be published after the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A job changed its state. A transition to scheduled means that its queue has a ready job.
    ///
    /// `since`: when the job became ready, for a claim; when the attempt started, for its end.
    /// Other transitions, and those of other servers, have none.
    Moved {
        id: JobId,
        seq: Seq,
        queue: QueueName,
        job_type: JobType,
        workflow: Option<WorkflowId>,
        step: Transition,
        since: Option<Timestamp>,
    },
    /// The queue may have a job for a waiting claim although no job changed its state.
    Claimable(QueueName),
    /// A queue changed, by a command or a submission.
    Queue { name: QueueName, change: QueueChange, at: Timestamp },
    /// A schedule changed or had a tick. The server announces it to the store.
    Schedule { name: Arc<str>, queue: QueueName, change: ScheduleChange, at: Timestamp },
}

impl Effect {
    /// Returns the type of the job and its transition, if a job changed its state.
    pub fn transition(&self) -> Option<(&JobType, &Transition)> {
        match self {
            Self::Moved { job_type, step, .. } => Some((job_type, step)),
            Self::Claimable(_) | Self::Queue { .. } | Self::Schedule { .. } => None,
        }
    }

    /// Returns whether the event stream reports this effect.
    pub fn is_event(&self) -> bool {
        match self {
            Self::Moved { .. } | Self::Queue { .. } | Self::Schedule { .. } => true,
            Self::Claimable(_) => false,
        }
    }
}

impl Engine {
    /// Creates an engine without jobs. Its only queue is `default`.
    pub fn new(options: EngineOptions) -> Self {
        let mut engine = Self {
            queues: Arc::default(),
            index: Index::default(),
            propagation: PropagationQueue::default(),
            deleting_queues: BTreeSet::new(),
            active_operations: BTreeSet::new(),
            next_seq: 1,
            undo_log: UndoLog::default(),
            subscriptions: Arc::default(),
            options: EngineOptions { cascade_jobs_max: options.cascade_jobs_max.max(1), ..options },
        };
        engine.ensure_default();
        engine
    }

    /// Restores an engine from the records.
    ///
    /// `jobs` are the live ones ([`Job::is_live`]). `ended` counts the other jobs per queue and
    /// state. `next_seq` is greater than the sequence number of every job that `jobs` does not
    /// list.
    pub fn rebuild<'a>(
        options: EngineOptions,
        queues: impl IntoIterator<Item = Queue>,
        jobs: impl IntoIterator<Item = &'a Job>,
        ended: impl IntoIterator<Item = (QueueName, StateKind, u64)>,
        next_seq: u64,
    ) -> Self {
        let mut engine = Self::new(options);
        for queue in queues {
            if queue.deleting.is_some() {
                engine.deleting_queues.insert(queue.name.clone());
            }
            Arc::make_mut(&mut engine.queues).insert(queue.name.clone(), Arc::new(queue));
        }
        engine.next_seq = next_seq.max(1);
        let jobs: Vec<IndexedFields<'a>> = jobs.into_iter().map(Job::outline).collect();
        engine.bulk_load(&jobs);
        for (queue, state, jobs) in ended {
            engine.index.add_ended(&queue, state, jobs);
        }
        engine
    }

    /// Creates an engine for some of the jobs of a store; the store keeps the index of all of them.
    ///
    /// The caller adds the jobs with [`Engine::index_job`] and [`Engine::restore_reclaimable`].
    /// `next_seq` is the first number that this engine may assign.
    pub fn partial(options: EngineOptions, queues: Arc<BTreeMap<QueueName, Arc<Queue>>>, next_seq: u64) -> Self {
        Self {
            deleting_queues: queues
                .values()
                .filter(|queue| queue.deleting.is_some())
                .map(|queue| queue.name.clone())
                .collect(),
            queues,
            index: Index::default(),
            propagation: PropagationQueue::default(),
            active_operations: BTreeSet::new(),
            next_seq,
            undo_log: UndoLog::default(),
            subscriptions: Arc::default(),
            options: EngineOptions { cascade_jobs_max: options.cascade_jobs_max.max(1), ..options },
        }
    }

    /// Makes an indexed running job with an expired lease ready for the next claim.
    ///
    /// A tick of an earlier engine has found the expiry, so the timer of the lease is removed.
    pub fn restore_reclaimable(&mut self, job: &IndexedFields<'_>) {
        let entry = IndexEntry::from_fields(job);
        if let Some(timer) = entry.timer() {
            self.index.drop_timer(timer);
        }
        self.index.mark_reclaimable(&entry);
    }

    /// Returns the last dependent that has received the pending propagation of this job.
    pub fn propagation_cursor(&self, dependency: Seq) -> Option<Seq> {
        self.propagation.cursor_of(dependency)
    }

    /// Continues the propagation of an indexed job after `cursor`, where an earlier engine stopped.
    pub fn resume_propagation(&mut self, dependency: Seq, cursor: Seq) {
        if let Some(key) = self.propagation.key_of(dependency) {
            self.propagation.set(key, Some(Propagation { dependency, cursor }));
        }
    }

    /// Returns whether the next claim may take over this running job because its lease has expired.
    pub fn is_reclaimable(&self, job: &Job) -> bool {
        self.index.is_reclaimable(&IndexEntry::of(job))
    }

    /// Counts jobs of a queue that are not indexed: per state, and the held ones among the pending.
    pub fn add_counts(&mut self, queue: &QueueName, counts: &StateCounts, held: u64) {
        self.index.add_counts(queue, counts, held);
    }

    /// Returns all queues, including those that are being deleted.
    pub fn all_queues(&self) -> &Arc<BTreeMap<QueueName, Arc<Queue>>> {
        &self.queues
    }

    /// Sets the subscriptions of the endpoints; they hold from the next command on.
    pub fn set_subscriptions(&mut self, subscriptions: Arc<Subscriptions>) {
        self.subscriptions = subscriptions;
    }

    /// Sets the next number to assign, for a store that allocates numbers in blocks.
    pub fn set_next_seq(&mut self, next_seq: u64) {
        self.next_seq = next_seq;
    }

    /// Indexes one live job during a rebuild.
    pub fn index_job(&mut self, job: &IndexedFields<'_>) {
        let entry = IndexEntry::from_fields(job);
        let last = entry.position().unwrap_or(0).max(job.seq.0);
        self.next_seq = self.next_seq.max(last.saturating_add(1));
        self.index.replace(None, Some(&entry));
        if job.pending_propagation != PendingPropagation::Nothing {
            // Jobs propagate in the order in which they ended, also after a restart.
            let key = self.propagation.next_key(job.updated_at);
            self.propagation.set(key, Some(Propagation { dependency: job.seq, cursor: Seq(0) }));
        }
    }

    /// Registers a workflow with an unfinished operation during a rebuild.
    pub fn resume_operation(&mut self, workflow: WorkflowId) {
        self.active_operations.insert(workflow);
    }

    fn ensure_default(&mut self) {
        let name = QueueName::new(Queue::DEFAULT);
        let queue = name.and_then(|name| Queue::new(name, self.options.default_profile, SettingsPatch::default()));
        // Always `Ok`: the name is a valid constant, and a profile without overrides has no
        // conflict.
        if let Ok(queue) = queue {
            Arc::make_mut(&mut self.queues).insert(queue.name.clone(), Arc::new(queue));
        }
    }

    pub fn options(&self) -> EngineOptions {
        self.options
    }

    /// Returns the queue of this name, unless it is being deleted.
    pub fn queue(&self, name: &QueueName) -> Option<&Arc<Queue>> {
        self.queues.get(name).filter(|queue| queue.deleting.is_none())
    }

    /// Returns the queues that are not being deleted.
    pub fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues.values().filter(|queue| queue.deleting.is_none())
    }

    /// Returns the number of jobs in each state. The cost is constant.
    pub fn counts(&self, queue: &QueueName) -> StateCounts {
        self.index.counts(queue)
    }

    /// Returns when the next tick is due: now if work is pending, else at the next timer of a job.
    /// Retention is not included: only the records know when it is due.
    pub fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        if self.has_pending_work() { Some(now) } else { self.index.next_timer().map(|(at, ..)| at) }
    }

    /// Returns whether a delete, a workflow operation or a propagation needs further slices.
    pub fn has_pending_work(&self) -> bool {
        !(self.deleting_queues.is_empty() && self.active_operations.is_empty() && self.propagation.is_empty())
    }

    /// Returns when the scheduled job that has waited longest became ready.
    pub fn oldest_scheduled_at(&self, queue: &QueueName) -> Option<Timestamp> {
        self.index.oldest_scheduled_at(queue)
    }

    /// Returns the next number: greater than every sequence number and position assigned so far.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(crate) fn queue_context(&self, queue: &QueueName) -> QueueContext<'_> {
        self.queue(queue).map_or(QueueContext::Deleted, |queue| QueueContext::Exists(&queue.admission))
    }
}
