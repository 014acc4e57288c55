//! `longshore jobs requeue`

use clap::Args;
use longshore_api::Time;
use longshore_api::admin::Requeue as Body;
use longshore_api::enums::BulkAction;

use super::cancel::only_ids;
use crate::commands::bulk::{BulkScope, Matching, Verdict, apply_to_each, change_matching};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Bring back jobs that failed, were cancelled or are dead letters: some by id, or all that match.
#[derive(Debug, Args)]
#[command(after_help = "\
By the queue's profile the job itself comes back, or a clone of it with an id of its own.

Examples:
  longshore jobs requeue 0b6f…
  longshore jobs requeue --queue reports --state failed --error-code timeout --dry-run")]
pub(crate) struct Requeue {
    /// Ids of jobs
    #[arg(value_name = "ID", required_unless_present_any = ["queue", "state", "job_type", "tag", "error_code"])]
    ids: Vec<String>,
    /// Keep the counters and the checkpoint of before
    #[arg(long, requires = "ids")]
    keep_counters: bool,
    /// Not before this instant
    #[arg(long, value_name = "TIME", requires = "ids")]
    run_at: Option<Time>,
    #[command(flatten)]
    matching: Matching,
    #[command(flatten)]
    extent: BulkScope,
}

impl Requeue {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            if self.ids.is_empty() {
                return change_matching(context, &client, BulkAction::Requeue, &self.matching, &self.extent).await;
            }
            only_ids(&self.matching)?;
            let body = Body { reset: self.keep_counters.then_some(false), run_at: self.run_at };
            let requeue = async |id: String| {
                let done = client.requeue(&id, &body).await?;
                Ok(Verdict::requeued(&id, &done.id, done.state))
            };
            apply_to_each(context, &client, &self.ids, ("requeued", self.extent.dry_run), requeue).await
        })
    }
}
