//! `longshore jobs dead-letter`

use clap::Args;
use longshore_api::admin::DeadLetter as Body;

use crate::commands::bulk::{JobVerdict, apply_to_each};
use crate::context::Context;
use crate::terminal::error::CliError;

/// End jobs as dead letters, for an operator to inspect.
#[derive(Debug, Args)]
#[command(after_help = "\
A running job loses its lease: its worker can no longer complete it.

Examples:
  longshore jobs dead-letter 0b6f… --reason 'bad address'
  longshore dead-letters list")]
pub(crate) struct DeadLetterJobs {
    /// Ids of jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Reason, stored as the error of the job
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl DeadLetterJobs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let body = Body { reason: self.reason };
        context.call(async {
            let dead_letter = async |id: String| {
                let done = client.dead_letter(&id, &body).await?;
                Ok(JobVerdict::state(&id, done.state))
            };
            apply_to_each(context, &client, &self.ids, ("ended", false), dead_letter).await
        })
    }
}
