//! Which events a listener wants.

use longshore_core::access::QueueScope;
use longshore_core::id::{JobId, JobType, QueueName, WorkflowId};
use longshore_engine::Effect;
use longshore_store::StateSet;

/// All conditions must hold. The default matches every event.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventFilter {
    /// Of jobs in this queue, and of the queue itself.
    pub(crate) queue: Option<QueueName>,
    pub(crate) job_type: Option<JobType>,
    pub(crate) job: Option<JobId>,
    pub(crate) workflow: Option<WorkflowId>,
    /// States entered; empty: all.
    pub(crate) states: StateSet,
    /// Queues that the caller may see; `None`: all.
    pub(crate) scope: Option<QueueScope>,
}

impl EventFilter {
    fn is_visible(&self, queue: &QueueName) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.covers(queue))
    }

    pub(crate) fn matches(&self, event: &Effect) -> bool {
        let names_job_fields =
            self.job_type.is_some() || self.job.is_some() || self.workflow.is_some() || !self.states.is_empty();
        match event {
            Effect::Moved { id, queue, job_type, workflow, step, .. } => {
                self.is_visible(queue)
                    && self.job.is_none_or(|job| job == *id)
                    && self.queue.as_ref().is_none_or(|name| name == queue)
                    && self.job_type.as_ref().is_none_or(|name| name == job_type)
                    && (self.workflow.is_none() || self.workflow == *workflow)
                    && self.states.admits(step.to)
            }
            Effect::Queue { name, .. } => {
                self.is_visible(name) && !names_job_fields && self.queue.as_ref().is_none_or(|queue| queue == name)
            }
            Effect::Schedule { queue, .. } => self.is_visible(queue) && !names_job_fields && self.queue.is_none(),
            Effect::Claimable(_) => false,
        }
    }
}
