//! Filters, cursors and pages of listings.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_core::hash::fnv1a;
use longshore_core::id::{JobType, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::priority::Priority;
use longshore_core::state::{State, StateKind};
use longshore_core::tags::Tags;
use longshore_core::time::{Duration, Timestamp};
use longshore_core::workflow::{Workflow, WorkflowState};

/// A set of states. The empty set matches every state.
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

    /// Returns the states that match: all nine for the empty set.
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

/// A job matches if it satisfies every condition that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub queue: Option<QueueName>,
    pub states: StateSet,
    pub job_type: Option<JobType>,
    /// `alice` matches that key with any value. `tenant:acme` matches that key, or the key `tenant`
    /// with the value `acme`.
    pub tag: Option<Arc<str>>,
    pub priority: Option<Priority>,
    pub error_code: Option<Arc<str>>,
    /// Members of this workflow, replaced ones included.
    pub workflow: Option<WorkflowId>,
    pub external_id: Option<Arc<str>>,
    /// Matches in every scope, and also after the idempotency window has ended.
    pub idempotency_key: Option<Arc<str>>,
    pub correlation_id: Option<Arc<str>>,
    /// Created at this instant or later.
    pub created_after: Option<Timestamp>,
    /// Created before this instant.
    pub created_before: Option<Timestamp>,
}

/// Clocks of nodes differ: `created_at` may decrease by this much while sequence numbers increase.
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
            && self.workflow.is_none_or(|id| job.workflow() == Some(id))
            && self.error_code.as_ref().is_none_or(|value| code() == Some(value))
            && self.external_id.as_ref().is_none_or(|id| job.external_id.as_ref() == Some(id))
            && self.idempotency_key.as_ref().is_none_or(|value| key() == Some(value))
            && self.correlation_id.as_ref().is_none_or(|id| job.correlation_id.as_ref() == Some(id))
    }

    /// Returns the most selective index term of the filter, if it has one.
    pub fn tag_term(&self) -> Option<String> {
        let key = self.idempotency_key.as_deref().map(|key| hashed_term(KEY_PREFIX, key));
        let correlation_id = || self.correlation_id.as_deref().map(|id| hashed_term(CORRELATION_PREFIX, id));
        key.or_else(correlation_id).or_else(|| self.tag.as_deref().map(str::to_owned))
    }

    /// Whether all jobs with lower sequence numbers than this one are too old to match.
    pub fn excludes_older_than(&self, job: &Job) -> bool {
        self.created_after.is_some_and(|after| job.created_at + CREATED_SLACK < after)
    }

    /// Whether all jobs with higher sequence numbers than one created at this instant are too new
    /// to match.
    pub fn excludes_newer_than(&self, created_at: Timestamp) -> bool {
        self.created_before.is_some_and(|before| created_at >= before + CREATED_SLACK)
    }
}

fn has_tag(tags: &Tags, term: &str) -> bool {
    tag_terms(tags).any(|other| other == term)
}

/// Returns the index terms of tags: each key, and each key with its value.
pub fn tag_terms(tags: &Tags) -> impl Iterator<Item = String> {
    tags.pairs().flat_map(|(key, value)| {
        let with_value = value.map(|value| format!("{key}:{value}"));
        [Some(key.to_owned()), with_value].into_iter().flatten()
    })
}

// The API rejects tags that start like this. A tag of the Ocypod dialect may equal such a term; the
// filter then rejects the extra record.
const KEY_PREFIX: &str = "\u{1}k";
const CORRELATION_PREFIX: &str = "\u{1}c";

/// Hashes a value into a term that is short and storable in PostgreSQL. The record resolves
/// collisions.
fn hashed_term(prefix: &str, value: &str) -> String {
    format!("{prefix}{:016x}", fnv1a(value))
}

/// The fields of a job that the term index is built from. An edit can change all but the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermFields {
    tags: Tags,
    correlation_id: Option<Arc<str>>,
    key: Option<Arc<str>>,
}

impl TermFields {
    pub fn of(job: &Job) -> Self {
        Self {
            tags: job.tags.clone(),
            correlation_id: job.correlation_id.clone(),
            key: job.idempotency.as_ref().map(|idempotency| Arc::clone(&idempotency.key)),
        }
    }

    /// Whether the index terms of this job would be the same.
    pub fn are_those_of(&self, job: &Job) -> bool {
        self.tags == job.tags && self.correlation_id == job.correlation_id
    }

    /// Returns the terms under which the index lists the job.
    pub fn terms(&self) -> BTreeSet<String> {
        let key = self.key.as_deref().map(|key| hashed_term(KEY_PREFIX, key));
        let correlation_id = self.correlation_id.as_deref().map(|id| hashed_term(CORRELATION_PREFIX, id));
        tag_terms(&self.tags).chain(key).chain(correlation_id).collect()
    }
}

/// Whether the term index lists this job.
pub fn has_terms(job: &Job) -> bool {
    job.tags.pairs().next().is_some() || job.correlation_id.is_some() || job.idempotency.is_some()
}

#[derive(Clone, Debug)]
pub struct JobQuery {
    pub filter: JobFilter,
    /// At least 1. The server allows at most 1,000.
    pub limit: usize,
    /// Cursor: only jobs with lower sequence numbers.
    pub before: Option<Seq>,
}

/// Members of a workflow, oldest first, without members that clones have replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberQuery {
    pub workflow: WorkflowId,
    pub limit: usize,
    /// Cursor: only members with higher sequence numbers.
    pub after: Seq,
}

/// Workflows, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkflowQuery {
    pub state: Option<WorkflowState>,
    pub limit: usize,
    /// Cursor: only workflows with lower sequence numbers.
    pub before: Option<Seq>,
}

#[derive(Clone, Debug)]
pub struct WorkflowPage {
    pub workflows: Vec<Arc<Workflow>>,
    /// The cursor of the next page. `None`: this is the last page.
    pub next: Option<Seq>,
}

/// The position of a ready job in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    pub queue: QueueName,
    /// The `position` of `State::Scheduled`.
    pub position: u64,
    /// The job's own priority. `None` if the queue ignores priorities.
    pub priority: Option<Priority>,
}

impl QueuePosition {
    /// Whether a job is claimed before this position, judged by its own priority and position.
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
    /// The cursor of the next page. `None`: this is the last page.
    pub next: Option<Seq>,
}
