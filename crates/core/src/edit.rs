//! Edit: changes fields of a job. The payload cannot be changed.

use std::sync::Arc;

use crate::context::TransitionContext;
use crate::history::Cause;
use crate::id::{JobType, validate_length};
use crate::job::Job;
use crate::limits::CORRELATION_ID_CHARS_MAX;
use crate::patch::{PolicyPatch, RetryPatch};
use crate::policy::Policy;
use crate::priority::Priority;
use crate::refusal::{Invalid, Refusal};
use crate::retry;
use crate::state::StateKind;
use crate::tags::Tags;
use crate::target_url::validate_target_url;

/// Changes to a job. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    pub priority: Option<Priority>,
    pub job_type: Option<JobType>,
    pub tags: Option<Tags>,
    pub correlation_id: Option<Option<Arc<str>>>,
    pub callback_url: Option<Option<Arc<str>>>,
    pub retry_limit: Option<u32>,
}

impl Edit {
    /// Checks what does not depend on the job, before any lookup.
    pub fn check(&self) -> Result<(), Invalid> {
        let given = |text: &Option<Option<Arc<str>>>| text.clone().flatten().unwrap_or_default();
        validate_length("correlation_id", &given(&self.correlation_id), CORRELATION_ID_CHARS_MAX)?;
        if let Some(Some(url)) = &self.callback_url {
            validate_target_url("callback_url", url)?;
        }
        self.tags.as_ref().map_or(Ok(()), Tags::validate_lenient)
    }
}

/// Applies an edit. A running job keeps its priority and its type.
pub fn edit(job: &mut Job, edit: &Edit, context: &mut TransitionContext<'_>) -> Result<StateKind, Refusal> {
    let changes_order = edit.priority.is_some() || edit.job_type.is_some();
    match job.kind() {
        StateKind::Pending | StateKind::Scheduled | StateKind::Delayed | StateKind::Retrying => {}
        StateKind::Running if !changes_order => {}
        StateKind::Running
        | StateKind::Completed
        | StateKind::Failed
        | StateKind::DeadLetter
        | StateKind::Cancelled => return Err(Refusal::IllegalTransition { from: job.kind(), verb: "edited" }),
    }
    if edit.tags.is_some() && job.policy.profile.tags_fixed() {
        return Err(Refusal::invalid("tags", "are fixed at creation in this queue"));
    }
    let policy = edit.retry_limit.map(|limit| with_limit(&job.policy, limit)).transpose()?;
    if let Some(priority) = edit.priority {
        job.priority = priority;
    }
    if let Some(job_type) = &edit.job_type {
        job.job_type = job_type.clone();
    }
    if let Some(tags) = &edit.tags {
        job.tags = tags.clone();
    }
    if let Some(correlation_id) = &edit.correlation_id {
        job.correlation_id = correlation_id.clone();
    }
    if let Some(callback_url) = &edit.callback_url {
        job.callback_url = callback_url.clone();
    }
    if let Some(policy) = policy {
        job.policy = policy;
        match job.kind() {
            StateKind::Retrying if retry::limit_exceeded(job) => {
                job.finish(retry::exhausted_state(job), Cause::Exhausted, context);
            }
            StateKind::Retrying
            | StateKind::Pending
            | StateKind::Scheduled
            | StateKind::Delayed
            | StateKind::Running
            | StateKind::Completed
            | StateKind::Failed
            | StateKind::DeadLetter
            | StateKind::Cancelled => {}
        }
    }
    Ok(job.kind())
}

fn with_limit(policy: &Policy, limit: u32) -> Result<Arc<Policy>, Invalid> {
    let patch = PolicyPatch { retry: RetryPatch { limit: Some(limit), ..Default::default() }, ..Default::default() };
    Ok(Arc::new(patch.resolve(policy)?))
}
