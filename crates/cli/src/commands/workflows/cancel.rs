//! `longshore workflows cancel`

use clap::Args;
use longshore_api::admin::Cancel as Body;
use longshore_api::enums::WorkflowState;

use super::show;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Cancel all jobs of a workflow that have not ended, and close it.
#[derive(Debug, Args)]
#[command(after_help = "Running jobs are asked to stop, unless their queue cancels at once or --force is given.")]
pub(crate) struct Cancel {
    /// The workflow's id
    id: String,
    /// Kept with each job
    #[arg(long)]
    reason: Option<String>,
    /// At once, also jobs that run
    #[arg(long)]
    force: bool,
}

impl Cancel {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let body = Body { reason: self.reason, force: self.force.then_some(true) };
        let workflow = context.call(async { Ok(client.cancel_workflow(&self.id, &body).await?) })?;
        if workflow.state == WorkflowState::Running {
            context.screen.info("requested: some jobs are still to end");
        }
        show(context, &workflow)
    }
}
