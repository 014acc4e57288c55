//! `longshore jobs submit`

use clap::Args;

use crate::commands::bulk::{Verdict, apply_to_each};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Let held jobs go.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// Ids of jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl Submit {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            let submit = async |id: String| {
                let done = client.submit_held(&id).await?;
                Ok(Verdict::state(&id, done.state))
            };
            apply_to_each(context, &client, &self.ids, ("submitted", false), submit).await
        })
    }
}
