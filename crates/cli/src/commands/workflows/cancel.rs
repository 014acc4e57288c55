//! `longshore workflows cancel`

use clap::Args;
use longshore_api::admin::Cancel as Body;
use longshore_api::enums::WorkflowState;

use super::show;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Cancel all unfinished jobs of a workflow, and close it.
#[derive(Debug, Args)]
#[command(after_help = "\
A running job ends when its worker has stopped it. With --force, or if the queue's policy says so,
it ends at once.")]
pub(crate) struct CancelWorkflow {
    /// The workflow's id
    id: String,
    /// Reason, stored with each job
    #[arg(long)]
    reason: Option<String>,
    /// End running jobs at once
    #[arg(long)]
    force: bool,
}

impl CancelWorkflow {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let body = Body { reason: self.reason, force: self.force.then_some(true) };
        let workflow = context.call(async { Ok(client.cancel_workflow(&self.id, &body).await?) })?;
        if workflow.state == WorkflowState::Running {
            context.output.info("cancel requested: some jobs are still running");
        }
        show(context, &workflow)
    }
}
