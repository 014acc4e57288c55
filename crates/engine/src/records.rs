//! The interface to the store: the engine indexes jobs, the store holds their records.

use std::sync::Arc;

use longshore_core::id::{JobId, JobType, QueueName, Seq, WorkflowId};
use longshore_core::job::{IdempotencyKey, Job};
use longshore_core::policy::IdempotencyScope;
use longshore_core::rng::Rng;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCountDelta, Workflow};

use crate::queue::Queue;
use crate::system::SystemKind;

/// Records by sequence number, and the lookups that the rules need. Each call costs at most O(log
/// n).
///
/// The engine checks a record out, changes it and puts it back. No other call sees it in between.
pub trait JobRecords {
    type Error;

    /// Returns the id of the job that gets this number. A store may encode the number in the id.
    fn new_id(&mut self, _seq: Seq, rng: &mut dyn Rng) -> JobId {
        JobId::random(rng)
    }
    fn seq_of(&mut self, id: JobId) -> Result<Option<Seq>, Self::Error>;
    /// Takes a record out; [`Self::put`] or [`Self::return_unchanged`] follows.
    fn checkout(&mut self, seq: Seq) -> Result<Option<Box<Job>>, Self::Error>;
    /// Stores a changed record.
    fn put(&mut self, job: Box<Job>) -> Result<(), Self::Error>;
    /// Returns a record that was only read.
    fn return_unchanged(&mut self, job: Box<Job>);

    /// Stores a new record with its payload, and adds it to its workflow if it has one.
    /// Precondition: its external id is not in use.
    fn insert(&mut self, job: Box<Job>, payload: PayloadSource) -> Result<(), Self::Error>;
    /// Returns the size of a payload that a claim is about to deliver.
    fn payload_bytes(&mut self, seq: Seq) -> Result<usize, Self::Error>;
    /// Removes the record, its payload, external id, dependency edges and member reference.
    /// The engine itself removes the idempotency key.
    fn remove(&mut self, job: Box<Job>) -> Result<(), Self::Error>;

    fn external_id(&mut self, queue: &QueueName, external_id: &str) -> Result<Option<Seq>, Self::Error>;

    /// Adds a dependency edge.
    fn link(&mut self, dependency: Seq, dependent: Seq) -> Result<(), Self::Error>;
    /// Removes a dependency edge.
    fn unlink(&mut self, dependency: Seq, dependent: Seq) -> Result<(), Self::Error>;
    /// Returns dependents of a job with numbers greater than `after`, in order of creation.
    fn dependents(&mut self, dependency: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, Self::Error>;

    fn key(&mut self, key: &ScopedIdempotencyKey) -> Result<Option<KeyEntry>, Self::Error>;
    fn put_key(&mut self, key: ScopedIdempotencyKey, entry: KeyEntry) -> Result<(), Self::Error>;
    fn remove_key(&mut self, key: &ScopedIdempotencyKey) -> Result<(), Self::Error>;

    /// Returns the earliest [`Job::prune_at`] or [`KeyEntry::prune_at`].
    /// An instant later than `now` may be a lower bound.
    fn next_prune(&mut self, now: Timestamp) -> Result<Option<(Timestamp, PruneTarget)>, Self::Error>;

    /// Returns jobs of a queue in one state, in order of creation.
    fn jobs_in_state(&mut self, queue: &QueueName, state: StateKind, limit: usize) -> Result<Vec<Seq>, Self::Error>;

    /// Returns a workflow, including the changes of the current command.
    fn workflow(&mut self, id: WorkflowId) -> Result<Option<Workflow>, Self::Error>;
    /// Stores a new or changed workflow, except for its counts: only [`Self::tally`] changes them.
    fn put_workflow(&mut self, workflow: &Workflow) -> Result<(), Self::Error>;
    /// Adds to the counts of a workflow. The store may combine and reorder such calls.
    fn tally(&mut self, id: WorkflowId, change: &MemberCountDelta) -> Result<(), Self::Error>;
    /// Removes a workflow without members.
    fn remove_workflow(&mut self, id: WorkflowId) -> Result<(), Self::Error>;
    /// Returns members with numbers greater than `after`, in order of creation.
    /// The list may include members whose records were removed.
    fn members(&mut self, id: WorkflowId, after: Seq, limit: usize) -> Result<Vec<Seq>, Self::Error>;
    /// Sets the member that a reference resolves to.
    fn set_member_ref(&mut self, id: WorkflowId, reference: &str, member: Seq) -> Result<(), Self::Error>;
    fn member(&mut self, id: WorkflowId, reference: &str) -> Result<Option<Seq>, Self::Error>;

    fn put_queue(&mut self, queue: &Queue) -> Result<(), Self::Error>;
    fn remove_queue(&mut self, name: &QueueName) -> Result<(), Self::Error>;

    /// Encodes a job without its payload, attempts and history, so that it can be decoded without
    /// the store. The outbox keeps the job as it was at a transition.
    fn encode_snapshot(&self, job: &Job) -> Vec<u8>;

    /// Writes a system record in the commit of the command, over one with the same key.
    fn put_system(&mut self, kind: SystemKind, key: Vec<u8>, value: Vec<u8>) -> Result<(), Self::Error>;
}

/// The payload of a new record.
#[derive(Clone, Debug)]
pub enum PayloadSource {
    New(Payload),
    /// A clone shares the payload of its original.
    CopyOf(Seq),
}

/// A record or key whose retention has ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PruneTarget {
    Job(Seq),
    Key(ScopedIdempotencyKey),
}

/// An idempotency key with the scope in which it is unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopedIdempotencyKey {
    pub queue: Option<QueueName>,
    pub job_type: Option<JobType>,
    pub key: Arc<str>,
}

impl ScopedIdempotencyKey {
    pub fn of(key: &IdempotencyKey, queue: &QueueName) -> Option<Self> {
        let (queue, job_type) = match key.scope {
            IdempotencyScope::Type => (Some(queue.clone()), Some(key.job_type.clone())),
            IdempotencyScope::Queue => (Some(queue.clone()), None),
            IdempotencyScope::Global => (None, None),
            IdempotencyScope::Off => return None,
        };
        Some(Self { queue, job_type, key: Arc::clone(&key.key) })
    }
}

/// The job of an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    pub id: JobId,
    pub seq: Seq,
    /// When the first submission was accepted: the start of the window.
    pub at: Timestamp,
    /// The end of the window, set once the record of the job is removed.
    pub prune_at: Option<Timestamp>,
}
