//! Where the records are. The engine holds the order of jobs, a store holds the jobs: this is what the engine asks of it.

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

/// Records by sequence number, with the few look-ups that the rules need. Nothing here may cost more than O(log n).
///
/// A record is taken out, changed, and put back; between the two the store does not see it.
pub trait JobRecords {
    type Error;

    /// The id of the job that will have this number. A store may choose ids in which it finds the number again.
    fn new_id(&mut self, _seq: Seq, rng: &mut dyn Rng) -> JobId {
        JobId::random(rng)
    }
    fn seq_of(&mut self, id: JobId) -> Result<Option<Seq>, Self::Error>;
    fn checkout(&mut self, seq: Seq) -> Result<Option<Box<Job>>, Self::Error>;
    /// Puts a changed record back.
    fn put(&mut self, job: Box<Job>) -> Result<(), Self::Error>;
    /// Puts a record back that was only looked at.
    fn return_unchanged(&mut self, job: Box<Job>);

    /// A new record with its payload. Its external id, if any, is free. A job with a membership is a member from now on.
    fn insert(&mut self, job: Box<Job>, payload: PayloadSource) -> Result<(), Self::Error>;
    /// Removes record, payload, external id, edges, and its name among the members of a workflow. Its idempotency key is the engine's business.
    fn remove(&mut self, job: Box<Job>) -> Result<(), Self::Error>;

    fn external_id(&mut self, queue: &QueueName, external_id: &str) -> Result<Option<Seq>, Self::Error>;

    /// `dependent` waits for `dependency`.
    fn link(&mut self, dependency: Seq, dependent: Seq) -> Result<(), Self::Error>;
    /// `dependent` waits for somebody else instead.
    fn unlink(&mut self, dependency: Seq, dependent: Seq) -> Result<(), Self::Error>;
    /// Dependents of a job beyond `after`, in order of creation.
    fn dependents(&mut self, dependency: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, Self::Error>;

    fn key(&mut self, key: &ScopedIdempotencyKey) -> Result<Option<KeyEntry>, Self::Error>;
    fn put_key(&mut self, key: ScopedIdempotencyKey, entry: KeyEntry) -> Result<(), Self::Error>;
    fn remove_key(&mut self, key: &ScopedIdempotencyKey) -> Result<(), Self::Error>;

    /// The earliest [`Job::prune_at`] or [`KeyEntry::purge_at`] of all. While it is later than `now` it need only be a lower bound.
    fn next_prune(&mut self, now: Timestamp) -> Result<Option<(Timestamp, PruneTarget)>, Self::Error>;

    /// Jobs of a queue in one state, in order of creation.
    fn jobs_in_state(&mut self, queue: &QueueName, state: StateKind, limit: usize) -> Result<Vec<Seq>, Self::Error>;

    /// With all that this command has changed about it so far.
    fn workflow(&mut self, id: WorkflowId) -> Result<Option<Workflow>, Self::Error>;
    /// A new or changed workflow. Its tally is not taken from here: only [`Records::tally`] changes that.
    fn put_workflow(&mut self, workflow: &Workflow) -> Result<(), Self::Error>;
    /// Adds to the sums of a workflow. In whatever order, and as many at once as the store likes.
    fn tally(&mut self, id: WorkflowId, change: &MemberCountDelta) -> Result<(), Self::Error>;
    /// Removes a workflow that has no members any more.
    fn remove_workflow(&mut self, id: WorkflowId) -> Result<(), Self::Error>;
    /// Numbers of members beyond `after`, in order of creation; records that are gone may be among them.
    fn members(&mut self, id: WorkflowId, after: Seq, limit: usize) -> Result<Vec<Seq>, Self::Error>;
    /// From now on this member has this name, whoever had it before.
    fn set_member_ref(&mut self, id: WorkflowId, reference: &str, member: Seq) -> Result<(), Self::Error>;
    fn member(&mut self, id: WorkflowId, reference: &str) -> Result<Option<Seq>, Self::Error>;

    fn put_queue(&mut self, queue: &Queue) -> Result<(), Self::Error>;
    fn remove_queue(&mut self, name: &QueueName) -> Result<(), Self::Error>;
}

/// Where a new record's payload comes from.
#[derive(Clone, Debug)]
pub enum PayloadSource {
    Given(Payload),
    /// A clone has the payload of its original.
    CopyOf(Seq),
}

/// What has outlived its use.
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

/// The job that a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    pub id: JobId,
    pub seq: Seq,
    /// The first accepted submission: the window runs from here.
    pub at: Timestamp,
    /// Set once the job is gone and only the key is left.
    pub prune_at: Option<Timestamp>,
}
