//! `longshore jobs submit`

use clap::Args;

use crate::commands::bulk::{Verdict, change_each};
use crate::context::Context;
use crate::terminal::error::Failure;

/// Let held jobs go.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// Ids of jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl Submit {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        context.call(async {
            let submit = async |id: String| {
                let done = client.release_held(&id).await?;
                Ok(Verdict::state(&id, done.state))
            };
            change_each(context, &client, &self.ids, ("submitted", false), submit).await
        })
    }
}
