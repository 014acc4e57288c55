//! The request to submit a batch, and its result.

use std::sync::Arc;

use longshore_core::id::{JobId, LeaseToken, QueueName, Seq, WorkflowId};
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::{DependencyRef, NewJob};
use longshore_core::workflow::Membership;

/// One job for one queue.
#[derive(Clone, Debug)]
pub struct Submission {
    pub queue: QueueName,
    pub job: NewJob,
}

/// An item of a batch that the caller could not parse. The engine refuses the batch with the errors
/// of all items, not only those of the invalid ones.
#[derive(Clone, Debug)]
pub struct InvalidSubmission {
    pub refusal: Refusal,
    /// The reference and dependencies, as far as they could be parsed: other items may depend on
    /// this one.
    pub reference: Option<Arc<str>>,
    pub after: Vec<DependencyRef>,
    pub after_any: Vec<DependencyRef>,
}

/// An item of a batch as the caller has parsed it.
pub type ParsedSubmission = Result<Submission, InvalidSubmission>;

/// A batch of new jobs, stored as a whole or not at all.
#[derive(Clone, Debug)]
pub struct SubmitRequest {
    pub batch: Vec<ParsedSubmission>,
    /// The running job that creates these as its children, and its lease token.
    pub parent: Option<(JobId, Option<LeaseToken>)>,
    /// The finalizer: runs after all jobs of the batch have completed.
    pub finally: Option<Box<ParsedSubmission>>,
    /// Refuses the batch unless all queues exist and have this profile.
    pub require_profile: Option<Profile>,
    /// The workflow of the jobs. Children always join the workflow of their parent.
    pub joining: Option<WorkflowTarget>,
}

/// The workflow that a batch creates or joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkflowTarget {
    New { name: Option<Arc<str>>, open: bool },
    Open(WorkflowId),
}

impl SubmitRequest {
    pub fn new(batch: Vec<Submission>) -> Self {
        Self::parsed(batch.into_iter().map(Ok).collect())
    }

    /// Creates a request with items that may be invalid.
    pub fn parsed(batch: Vec<ParsedSubmission>) -> Self {
        Self { batch, parent: None, finally: None, require_profile: None, joining: None }
    }

    /// Creates a request whose jobs form a workflow or join one.
    pub fn workflow(batch: Vec<Submission>, joining: WorkflowTarget) -> Self {
        Self { joining: Some(joining), ..Self::new(batch) }
    }

    /// Creates a request for children of a running job, with an optional finalizer.
    pub fn children(
        parent: JobId,
        token: Option<LeaseToken>,
        batch: Vec<Submission>,
        finally: Option<Submission>,
    ) -> Self {
        let finally = finally.map(|finally| Box::new(Ok(finally)));
        Self { parent: Some((parent, token)), finally, ..Self::new(batch) }
    }

    /// Returns the valid items, including the finalizer.
    pub fn submissions(&self) -> impl Iterator<Item = &Submission> {
        self.items().flatten()
    }

    /// Returns the dependencies of all items.
    pub fn dependencies(&self) -> impl Iterator<Item = &DependencyRef> {
        self.items().map(ItemRefs::of).flat_map(|item| item.after.iter().chain(item.after_any))
    }

    fn items(&self) -> impl Iterator<Item = &ParsedSubmission> {
        self.batch.iter().chain(self.finally.as_deref())
    }
}

/// The reference and dependencies of an item, valid or not.
#[derive(Clone, Copy)]
pub(super) struct ItemRefs<'a> {
    pub(super) reference: Option<&'a Arc<str>>,
    pub(super) after: &'a [DependencyRef],
    pub(super) after_any: &'a [DependencyRef],
}

impl<'a> ItemRefs<'a> {
    pub(super) fn of(parsed: &'a ParsedSubmission) -> Self {
        match parsed {
            Ok(Submission { job, .. }) => {
                Self { reference: job.reference.as_ref(), after: &job.after, after_any: &job.after_any }
            }
            Err(InvalidSubmission { reference, after, after_any, .. }) => {
                Self { reference: reference.as_ref(), after, after_any }
            }
        }
    }
}

/// The result for one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub id: JobId,
    pub seq: Seq,
    /// `None` if only the idempotency key of an earlier job is left.
    pub state: Option<StateKind>,
    pub duplicate: bool,
    /// The workflow that the item created or joined, and the reference of the job there.
    pub membership: Option<Membership>,
}

/// Why a batch was refused: the errors of its items, and the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRefusal {
    pub first: Refusal,
    pub errors: Vec<(usize, Refusal)>,
}

impl From<Refusal> for BatchRefusal {
    /// Creates a refusal of the batch as a whole.
    fn from(refusal: Refusal) -> Self {
        Self { first: refusal, errors: Vec::new() }
    }
}
