//! `longshore jobs run-now`

use clap::Args;

use crate::commands::bulk::{JobVerdict, apply_to_each};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Make delayed and retrying jobs ready now.
#[derive(Debug, Args)]
pub(crate) struct RunJobsNow {
    /// Ids of jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl RunJobsNow {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            let run_now = async |id: String| {
                let done = client.run_now(&id).await?;
                Ok(JobVerdict::state(&id, done.state))
            };
            apply_to_each(context, &client, &self.ids, ("made ready", false), run_now).await
        })
    }
}
