//! `longshore jobs delete`

use clap::Args;
use longshore_api::enums::BulkAction;

use super::cancel::only_ids;
use crate::commands::bulk::{BulkScope, Matching, Verdict, apply_to_each, change_matching};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Delete jobs that have ended: some by id, or all that match.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore jobs delete 0b6f…
  longshore jobs delete --queue reports --state completed --dry-run")]
pub(crate) struct Delete {
    /// Ids of jobs
    #[arg(value_name = "ID", required_unless_present_any = ["queue", "state", "job_type", "tag", "error_code"])]
    ids: Vec<String>,
    #[command(flatten)]
    matching: Matching,
    #[command(flatten)]
    extent: BulkScope,
}

impl Delete {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            if self.ids.is_empty() {
                return change_matching(context, &client, BulkAction::Delete, &self.matching, &self.extent).await;
            }
            only_ids(&self.matching)?;
            let delete = async |id: String| {
                client.delete_job(&id).await?;
                Ok(Verdict::done(&id))
            };
            apply_to_each(context, &client, &self.ids, ("deleted", self.extent.dry_run), delete).await
        })
    }
}
