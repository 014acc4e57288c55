//! The queues of jobs and workflows that restricted tokens have used.
//!
//! A job never moves to another queue, so an entry stays true. It saves a settlement the read of
//! its
//! job.

use std::collections::{BTreeSet, HashMap};

use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use parking_lot::Mutex;

/// Jobs that are remembered. The map is emptied when it is full: entries can be read again.
const JOBS_MAX: usize = 65_536;
const WORKFLOWS_MAX: usize = 4_096;

/// The queues of the members that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberQueues {
    pub(crate) queues: BTreeSet<QueueName>,
    /// The last member that was read.
    pub(crate) after: Seq,
    /// How many members the workflow had then.
    pub(crate) members_added: u64,
}

#[derive(Debug, Default)]
pub(crate) struct KnownQueues {
    jobs: Mutex<HashMap<JobId, QueueName>>,
    workflows: Mutex<HashMap<WorkflowId, MemberQueues>>,
}

impl KnownQueues {
    pub(crate) fn jobs(&self, ids: &[JobId]) -> Vec<Option<QueueName>> {
        let jobs = self.jobs.lock();
        ids.iter().map(|id| jobs.get(id).cloned()).collect()
    }

    pub(crate) fn add_jobs<'a>(&self, found: impl Iterator<Item = (JobId, &'a QueueName)>) {
        let mut jobs = self.jobs.lock();
        for (id, queue) in found {
            if jobs.len() >= JOBS_MAX {
                jobs.clear();
            }
            jobs.insert(id, queue.clone());
        }
    }

    pub(crate) fn workflow(&self, id: WorkflowId) -> MemberQueues {
        self.workflows.lock().get(&id).cloned().unwrap_or_default()
    }

    pub(crate) fn set_workflow(&self, id: WorkflowId, known: MemberQueues) {
        let mut workflows = self.workflows.lock();
        if workflows.len() >= WORKFLOWS_MAX {
            workflows.clear();
        }
        workflows.insert(id, known);
    }
}
