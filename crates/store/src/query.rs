//! What can be asked for in a listing.

use std::sync::Arc;

use longshore_core::id::{JobType, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::priority::Priority;
use longshore_core::state::{State, StateKind};
use longshore_core::tags::Tags;
use longshore_core::workflow::{Workflow, WorkflowState};

/// All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub queue: Option<QueueName>,
    pub state: Option<StateKind>,
    pub job_type: Option<JobType>,
    /// `alice` is the key, whatever its value; `tenant:acme` is that key, or the key `tenant` with the value `acme`.
    pub tag: Option<Arc<str>>,
    pub priority: Option<Priority>,
    pub error_code: Option<Arc<str>>,
    /// Members of this workflow, replaced ones included.
    pub workflow: Option<WorkflowId>,
}

impl JobFilter {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn matches(&self, job: &Job) -> bool {
        let code = || job.error.as_ref().and_then(|error| error.code.as_deref());
        self.queue.as_ref().is_none_or(|queue| *queue == job.queue)
            && self.state.is_none_or(|state| state == job.kind())
            && self.job_type.as_ref().is_none_or(|job_type| *job_type == job.job_type)
            && self.priority.is_none_or(|priority| priority == job.priority)
            && self.tag.as_ref().is_none_or(|tag| has_tag(&job.tags, tag))
            && self.workflow.is_none_or(|wanted| workflow_of(job) == Some(wanted))
            && self.error_code.as_ref().is_none_or(|wanted| code() == Some(wanted))
    }
}

pub fn workflow_of(job: &Job) -> Option<WorkflowId> {
    job.membership.as_ref().map(|membership| membership.workflow)
}

fn has_tag(tags: &Tags, wanted: &str) -> bool {
    tag_words(tags).any(|word| word == wanted)
}

/// The words under which a job is found: each key, and each key with its value.
pub fn tag_words(tags: &Tags) -> impl Iterator<Item = String> {
    tags.pairs().flat_map(|(key, value)| {
        let with_value = value.map(|value| format!("{key}:{value}"));
        [Some(key.to_owned()), with_value].into_iter().flatten()
    })
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
pub struct InLine {
    pub queue: QueueName,
    /// As the job's state says.
    pub position: u64,
    /// Of the job itself; `None` where the queue does not look at priorities.
    pub priority: Option<Priority>,
}

impl InLine {
    /// Whether a job stands before this place, as far as its own priority and its position tell.
    pub fn behind(&self, job: &Job) -> bool {
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
