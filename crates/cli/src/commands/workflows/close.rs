//! `longshore workflows close`

use clap::Args;

use super::show;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Close an open workflow: no more jobs can be added.
#[derive(Debug, Args)]
pub(crate) struct CloseWorkflow {
    /// The workflow's id
    id: String,
}

impl CloseWorkflow {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        show(context, &context.call(async { Ok(client.close_workflow(&self.id).await?) })?)
    }
}
