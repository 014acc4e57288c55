//! `longshore jobs delete`

use clap::{ArgGroup, Args};
use longshore_api::enums::BulkAction;

use super::cancel::only_ids;
use crate::commands::bulk::{BulkScope, JobVerdict, Matching, SELECTORS, apply_to_each, change_matching};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Delete jobs that have ended, by id or by filter.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("selection").required(true).multiple(true).args(SELECTORS)))]
#[command(after_help = "\
Examples:
  longshore jobs delete 0b6f…
  longshore jobs delete --queue reports --state completed --dry-run")]
pub(crate) struct DeleteJobs {
    /// Ids of jobs; or give a filter
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    matching: Matching,
    #[command(flatten)]
    scope: BulkScope,
}

impl DeleteJobs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            if self.ids.is_empty() {
                return change_matching(context, &client, BulkAction::Delete, &self.matching, &self.scope).await;
            }
            only_ids(&self.matching)?;
            let delete = async |id: String| {
                client.delete_job(&id).await?;
                Ok(JobVerdict::done(&id))
            };
            apply_to_each(context, &client, &self.ids, ("deleted", self.scope.dry_run), delete).await
        })
    }
}
