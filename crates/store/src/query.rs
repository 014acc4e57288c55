//! What can be asked for in a listing.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::id::{JobType, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::priority::Priority;
use longshore_core::state::{State, StateKind};
use longshore_core::tags::Tags;
use longshore_core::time::{Duration, Timestamp};
use longshore_core::workflow::{Workflow, WorkflowState};

/// Several states. The empty set stands for any state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSet(u16);

impl StateSet {
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a job in this state matches.
    pub fn admits(self, state: StateKind) -> bool {
        self.is_empty() || self.0 & (1 << state as u16) != 0
    }

    /// The states that match: all nine for the empty set.
    pub fn admitted(self) -> impl Iterator<Item = StateKind> {
        StateKind::ALL.iter().copied().filter(move |state| self.admits(*state))
    }
}

impl FromIterator<StateKind> for StateSet {
    fn from_iter<I: IntoIterator<Item = StateKind>>(states: I) -> Self {
        Self(states.into_iter().fold(0, |bits, state| bits | 1 << state as u16))
    }
}

impl From<StateKind> for StateSet {
    fn from(state: StateKind) -> Self {
        Self::from_iter([state])
    }
}

/// All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub queue: Option<QueueName>,
    pub states: StateSet,
    pub job_type: Option<JobType>,
    /// `alice` is the key, whatever its value; `tenant:acme` is that key, or the key `tenant` with the value `acme`.
    pub tag: Option<Arc<str>>,
    pub priority: Option<Priority>,
    pub error_code: Option<Arc<str>>,
    /// Members of this workflow, replaced ones included.
    pub workflow: Option<WorkflowId>,
    pub external_id: Option<Arc<str>>,
    /// Every job that was created with this key, in any scope, also after its window has lapsed.
    pub idempotency_key: Option<Arc<str>>,
    pub correlation_id: Option<Arc<str>>,
    /// Created at this instant or later.
    pub created_after: Option<Timestamp>,
    /// Created before this instant.
    pub created_before: Option<Timestamp>,
}

/// Clocks of several nodes differ, so `created_at` may fall by this much while numbers rise.
const CREATED_SLACK: Duration = Duration::from_mins(1);

impl JobFilter {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn matches(&self, job: &Job) -> bool {
        let code = || job.error.as_ref().and_then(|error| error.code.as_deref());
        let key = || job.idempotency.as_ref().map(|idempotency| &idempotency.key);
        self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && self.states.admits(job.kind())
            && self.job_type.as_ref().is_none_or(|job_type| *job_type == job.job_type)
            && self.priority.is_none_or(|priority| priority == job.priority)
            && self.created_after.is_none_or(|after| job.created_at >= after)
            && self.created_before.is_none_or(|before| job.created_at < before)
            && self.tag.as_ref().is_none_or(|tag| has_tag(&job.tags, tag))
            && self.workflow.is_none_or(|wanted| job.workflow() == Some(wanted))
            && self.error_code.as_ref().is_none_or(|wanted| code() == Some(wanted))
            && self.external_id.as_ref().is_none_or(|wanted| job.external_id.as_ref() == Some(wanted))
            && self.idempotency_key.as_ref().is_none_or(|wanted| key() == Some(wanted))
            && self.correlation_id.as_ref().is_none_or(|wanted| job.correlation_id.as_ref() == Some(wanted))
    }

    /// The word of the index that leads to the fewest jobs, if the filter has one.
    pub fn tag_term(&self) -> Option<String> {
        let key = self.idempotency_key.as_deref().map(|key| hashed_word(KEY_PREFIX, key));
        let correlation_id = || self.correlation_id.as_deref().map(|id| hashed_word(CORRELATION_PREFIX, id));
        key.or_else(correlation_id).or_else(|| self.tag.as_deref().map(str::to_owned))
    }

    /// Whether no job with a lower number than this one can match, because all of them are too old.
    pub fn excludes_older_than(&self, job: &Job) -> bool {
        self.created_after.is_some_and(|after| job.created_at + CREATED_SLACK < after)
    }

    /// Whether no job with a higher number than one created at this instant can match, because all of them are too new.
    pub fn excludes_newer_than(&self, created_at: Timestamp) -> bool {
        self.created_before.is_some_and(|before| created_at >= before + CREATED_SLACK)
    }
}

fn has_tag(tags: &Tags, wanted: &str) -> bool {
    tag_terms(tags).any(|word| word == wanted)
}

/// The words that tags add to the index: each key, and each key with its value.
pub fn tag_terms(tags: &Tags) -> impl Iterator<Item = String> {
    tags.pairs().flat_map(|(key, value)| {
        let with_value = value.map(|value| format!("{key}:{value}"));
        [Some(key.to_owned()), with_value].into_iter().flatten()
    })
}

// Such words are no tags of the API. A tag of the Ocypod dialect may equal one, and then only costs a look.
const KEY_PREFIX: &str = "\u{1}k";
const CORRELATION_PREFIX: &str = "\u{1}c";

/// A hash keeps words short, and free of characters that PostgreSQL cannot store. The record tells values apart.
fn hashed_word(prefix: &str, value: &str) -> String {
    format!("{prefix}{:016x}", fnv1a(value))
}

/// `hash_of` in SQL is the same function.
fn fnv1a(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The fields of a job that the word index is built from. An edit can change them, except for the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedFields {
    tags: Tags,
    correlation_id: Option<Arc<str>>,
    key: Option<Arc<str>>,
}

impl IndexedFields {
    pub fn of(job: &Job) -> Self {
        Self {
            tags: job.tags.clone(),
            correlation_id: job.correlation_id.clone(),
            key: job.idempotency.as_ref().map(|idempotency| Arc::clone(&idempotency.key)),
        }
    }

    /// Whether the index of this job would be the same.
    pub fn are_those_of(&self, job: &Job) -> bool {
        self.tags == job.tags && self.correlation_id == job.correlation_id
    }

    /// The words under which the index lists the job.
    pub fn words(&self) -> BTreeSet<String> {
        let key = self.key.as_deref().map(|key| hashed_word(KEY_PREFIX, key));
        let correlation_id = self.correlation_id.as_deref().map(|id| hashed_word(CORRELATION_PREFIX, id));
        tag_terms(&self.tags).chain(key).chain(correlation_id).collect()
    }
}

/// Whether the word index lists this job at all.
pub fn has_words(job: &Job) -> bool {
    job.tags.pairs().next().is_some() || job.correlation_id.is_some() || job.idempotency.is_some()
}

#[derive(Clone, Debug)]
pub struct JobQuery {
    pub filter: JobFilter,
    /// At least 1; the server lets nobody ask for more than 1,000.
    pub limit: usize,
    /// Only jobs before this one.
    pub before: Option<Seq>,
}

/// Members of a workflow, oldest first; those that clones have replaced are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberQuery {
    pub workflow: WorkflowId,
    pub limit: usize,
    /// Only members behind this one.
    pub after: Seq,
}

/// Workflows, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkflowQuery {
    pub state: Option<WorkflowState>,
    pub limit: usize,
    /// Only workflows with a lower number.
    pub before: Option<Seq>,
}

#[derive(Clone, Debug)]
pub struct WorkflowPage {
    pub workflows: Vec<Arc<Workflow>>,
    /// Where to go on; `None` when there is nothing more.
    pub next: Option<Seq>,
}

/// A place in line: who stands before it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    pub queue: QueueName,
    /// As the job's state says.
    pub position: u64,
    /// Of the job itself; `None` where the queue does not look at priorities.
    pub priority: Option<Priority>,
}

impl QueuePosition {
    /// Whether a job stands before this place, as far as its own priority and its position tell.
    pub fn is_after(&self, job: &Job) -> bool {
        let State::Scheduled { position } = job.state else { return false };
        let first = match self.priority {
            None => position < self.position,
            Some(priority) => (job.priority, position) < (priority, self.position),
        };
        first && job.queue == self.queue
    }
}

#[derive(Clone, Debug)]
pub struct Page {
    pub jobs: Vec<Arc<Job>>,
    /// Where to go on; `None` when there is nothing more.
    pub next: Option<Seq>,
}
