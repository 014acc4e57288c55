//! `longshore workflows retry`

use clap::Args;

use super::show;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Retry failed and cancelled members of a workflow, and revive those that waited for them.
#[derive(Debug, Args)]
#[command(after_help = "\
The queue setting manual_requeue decides whether a member runs again itself, or as a clone.")]
pub(crate) struct RetryWorkflow {
    /// The workflow's id
    id: String,
}

impl RetryWorkflow {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        show(context, &context.call(async { Ok(client.retry_workflow(&self.id).await?) })?)
    }
}
