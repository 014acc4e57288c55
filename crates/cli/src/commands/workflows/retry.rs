//! `longshore workflows retry`

use clap::Args;

use super::show;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Run again what failed or was cancelled, and bring back what waited on it.
#[derive(Debug, Args)]
#[command(
    after_help = "Jobs run again in place, or as clones that take their places, as their queues say (manual_requeue)."
)]
pub(crate) struct Retry {
    /// The workflow's id
    id: String,
}

impl Retry {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        show(context, &context.call(async { Ok(client.retry_workflow(&self.id).await?) })?)
    }
}
