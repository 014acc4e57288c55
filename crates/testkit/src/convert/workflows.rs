//! Conversion of workflows to and from the types of `longshore-core`.

use longshore_core::cancel::Force;
use longshore_core::id::{JobId, QueueName, WorkflowId};
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::workflow::Workflow;
use longshore_engine::{
    AdminCommand as Admin, Command as Order, Response as EngineResponse, SubmitRequest, WorkflowTarget,
};

use super::{Machine, Names};
use crate::target::*;

impl Names {
    pub(super) fn start_workflow(
        &mut self,
        machine: &mut dyn Machine,
        queue: &str,
        jobs: &[NewJob],
        open: bool,
    ) -> Result<Answer, Refusal> {
        let queue = QueueName::new(queue)?;
        if jobs.is_empty() && open {
            let response = machine.execute(Order::Admin(Admin::OpenWorkflow { name: None }));
            let Answer::WorkflowState { workflow, .. } = self.translate(response)? else {
                panic!("no workflow was opened")
            };
            return Ok(Answer::Workflow { workflow, jobs: Vec::new() });
        }
        self.join(machine, &queue, jobs, WorkflowTarget::New { name: None, open })
    }

    pub(super) fn grow_workflow(
        &mut self,
        machine: &mut dyn Machine,
        workflow: Handle,
        queue: &str,
        jobs: &[NewJob],
    ) -> Result<Answer, Refusal> {
        let id = self.workflow_id(workflow);
        // As with children: the refusal of a workflow precedes the checks of its members.
        let found = machine.workflow(id).ok_or(Refusal::WorkflowNotFound)?;
        if !found.open {
            return Err(Refusal::Illegal("the workflow is closed"));
        }
        self.join(machine, &QueueName::new(queue)?, jobs, WorkflowTarget::Open(id))
    }

    fn join(
        &mut self,
        machine: &mut dyn Machine,
        queue: &QueueName,
        jobs: &[NewJob],
        joining: WorkflowTarget,
    ) -> Result<Answer, Refusal> {
        let batch = self.read(machine, queue, jobs, Some(&joining))?;
        let response = machine.execute(Order::Submit(SubmitRequest::workflow(batch, joining)));
        let EngineResponse::Submitted(answer) = response else { panic!("expected submitted jobs: {response:?}") };
        let born = answer.map_err(|refused| refused.first)?;
        let id = born.iter().find_map(|job| job.membership.as_ref()).expect("a call names its workflow").workflow;
        Ok(Answer::Workflow { workflow: self.adopt_workflow(id), jobs: self.submitted(&born) })
    }

    pub(super) fn workflow_command(&mut self, command: &Command) -> Option<Admin> {
        Some(match command {
            Command::CloseWorkflow { workflow } => Admin::CloseWorkflow { id: self.workflow_id(*workflow) },
            Command::CancelWorkflow { workflow, reason, force } => Admin::CancelWorkflow {
                id: self.workflow_id(*workflow),
                reason: reason.clone(),
                force: if *force { Force::Now } else { Force::ByPolicy },
            },
            Command::RetryWorkflow { workflow } => Admin::RetryWorkflow { id: self.workflow_id(*workflow) },
            _ => return None,
        })
    }

    fn workflow_id(&mut self, workflow: Handle) -> WorkflowId {
        self.workflows.get(workflow).copied().unwrap_or_else(|| WorkflowId::random(&mut self.rng))
    }

    pub(super) fn adopt_workflow(&mut self, id: WorkflowId) -> Handle {
        let known = self.workflows.iter().position(|known| *known == id);
        known.unwrap_or_else(|| {
            self.workflows.push(id);
            self.workflows.len() - 1
        })
    }

    /// Runs the ticks that a workflow command has left. Its clones get handles, and the answer
    /// reports the resulting state.
    pub(crate) fn follow_up(
        &mut self,
        machine: &mut dyn Machine,
        answer: Result<Answer, Refusal>,
    ) -> Result<Answer, Refusal> {
        let Ok(Answer::WorkflowState { workflow, state }) = answer else { return answer };
        let Some(found) = self.workflows.get(workflow).and_then(|id| machine.workflow(*id)) else {
            return Ok(Answer::WorkflowState { workflow, state });
        };
        for (_, job) in machine.members(found.id) {
            if !self.handles.contains_key(&job) {
                let handle = self.adopt(job);
                machine.record_clone(job);
                debug_assert_eq!(handle + 1, self.ids.len(), "clones are found in order of creation");
            }
        }
        // A workflow that had ended stays ended.
        let state = if state == "running" { found.state().as_str().to_owned() } else { state };
        Ok(Answer::WorkflowState { workflow, state })
    }

    pub(crate) fn workflow(&self, machine: &mut dyn Machine, workflow: Handle) -> Option<WorkflowSnapshot> {
        let found = machine.workflow(*self.workflows.get(workflow)?)?;
        let member = |(name, job): (String, JobId)| (name, self.handles.get(&job).copied().unwrap_or(usize::MAX));
        Some(WorkflowSnapshot {
            state: found.state().as_str().to_owned(),
            open: found.open,
            counts: counts(&found),
            members: machine.members(found.id).into_iter().map(member).collect(),
        })
    }
}

fn counts(workflow: &Workflow) -> std::collections::BTreeMap<String, u64> {
    StateKind::ALL.iter().map(|state| (state.as_str().to_owned(), workflow.tally.of(*state))).collect()
}
