//! `longshore workflows close`

use clap::Args;

use super::show;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Say that no more jobs will be added to an open workflow.
#[derive(Debug, Args)]
pub(crate) struct Close {
    /// The workflow's id
    id: String,
}

impl Close {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        show(context, &context.call(async { Ok(client.close_workflow(&self.id).await?) })?)
    }
}
