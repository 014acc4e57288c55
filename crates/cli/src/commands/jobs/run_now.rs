//! `longshore jobs run-now`

use clap::Args;

use crate::commands::bulk::{Verdict, apply_to_each};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Put jobs into line now that were planned for later, or wait for a retry.
#[derive(Debug, Args)]
pub(crate) struct RunNow {
    /// Ids of jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl RunNow {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            let run_now = async |id: String| {
                let done = client.run_now(&id).await?;
                Ok(Verdict::state(&id, done.state))
            };
            apply_to_each(context, &client, &self.ids, ("put into line", false), run_now).await
        })
    }
}
