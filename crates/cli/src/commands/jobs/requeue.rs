//! `longshore jobs requeue`

use clap::{ArgGroup, Args};
use longshore_api::Time;
use longshore_api::admin::Requeue as Body;
use longshore_api::enums::BulkAction;

use super::cancel::only_ids;
use crate::commands::bulk::{BulkScope, JobVerdict, Matching, SELECTORS, apply_to_each, change_matching};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Requeue jobs that failed, were cancelled or are dead letters, by id or by filter.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("selection").required(true).multiple(true).args(SELECTORS)))]
#[command(after_help = "\
The queue's profile decides whether the job itself runs again, or a clone with a new id.

Examples:
  longshore jobs requeue 0b6f…
  longshore jobs requeue --queue reports --state failed --error-code timeout --dry-run")]
pub(crate) struct RequeueJobs {
    /// Ids of jobs; or give a filter
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Keep the counters and the checkpoint
    #[arg(long, requires = "ids")]
    keep_counters: bool,
    /// Run not before this time, such as 2026-11-18T09:00:00Z
    #[arg(long, value_name = "TIME", requires = "ids")]
    run_at: Option<Time>,
    #[command(flatten)]
    matching: Matching,
    #[command(flatten)]
    scope: BulkScope,
}

impl RequeueJobs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            if self.ids.is_empty() {
                return change_matching(context, &client, BulkAction::Requeue, &self.matching, &self.scope).await;
            }
            only_ids(&self.matching)?;
            let body = Body { reset: self.keep_counters.then_some(false), run_at: self.run_at };
            let requeue = async |id: String| {
                let done = client.requeue(&id, &body).await?;
                Ok(JobVerdict::requeued(&id, &done.id, done.state))
            };
            apply_to_each(context, &client, &self.ids, ("requeued", self.scope.dry_run), requeue).await
        })
    }
}
