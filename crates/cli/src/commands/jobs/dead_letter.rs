//! `longshore jobs dead-letter`

use clap::Args;
use longshore_api::admin::DeadLetter as Body;

use crate::commands::bulk::{Verdict, apply_to_each};
use crate::context::Context;
use crate::terminal::error::CliError;

/// End jobs that have not ended as dead letters, for a person to look at.
#[derive(Debug, Args)]
#[command(after_help = "\
A running job loses its lease: its worker cannot complete it any more.

Examples:
  longshore jobs dead-letter 0b6f… --reason 'bad address'
  longshore dead-letters list")]
pub(crate) struct DeadLetter {
    /// Ids of jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Kept with the job as its error
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl DeadLetter {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let body = Body { reason: self.reason };
        context.call(async {
            let dead_letter = async |id: String| {
                let done = client.dead_letter(&id, &body).await?;
                Ok(Verdict::state(&id, done.state))
            };
            apply_to_each(context, &client, &self.ids, ("ended", false), dead_letter).await
        })
    }
}
