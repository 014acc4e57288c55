//! `longshore jobs submit`

use clap::Args;

use crate::commands::bulk::{JobVerdict, apply_to_each};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Submit held jobs.
#[derive(Debug, Args)]
pub(crate) struct SubmitHeldJobs {
    /// Ids of jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl SubmitHeldJobs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            let submit = async |id: String| {
                let done = client.submit_held(&id).await?;
                Ok(JobVerdict::state(&id, done.state))
            };
            apply_to_each(context, &client, &self.ids, ("submitted", false), submit).await
        })
    }
}
