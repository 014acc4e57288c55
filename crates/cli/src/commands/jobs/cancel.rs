//! `longshore jobs cancel`

use clap::{ArgGroup, Args};
use longshore::Client;
use longshore_api::admin::Cancel as Body;
use longshore_api::enums::BulkAction;

use crate::commands::bulk::{
    BulkScope, JobVerdict, Matching, SELECTORS, apply_to_each, change_matching, count_matching,
};
use crate::commands::parse::counted;
use crate::context::Context;
use crate::terminal::confirm::{ask, can_ask};
use crate::terminal::error::CliError;

/// Cancel jobs that have not ended, by id or by filter.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("selection").required(true).multiple(true).args(SELECTORS)))]
#[command(after_help = "\
A running job ends when its worker has stopped it: the worker gets the request with its next
heartbeat. With --force, or if the queue's policy says so, the job ends at once.

With a filter the command counts the jobs and asks for confirmation; --yes confirms. Without a
terminal and without --yes it cancels nothing.

Examples:
  longshore jobs cancel 0b6f…
  longshore jobs cancel --queue reports --state delayed --dry-run
  longshore jobs cancel --queue reports --yes")]
pub(crate) struct CancelJobs {
    /// Ids of jobs; or give a filter
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Reason, stored with the job
    #[arg(long, requires = "ids")]
    reason: Option<String>,
    /// End running jobs at once
    #[arg(long, requires = "ids")]
    force: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    matching: Matching,
    #[command(flatten)]
    scope: BulkScope,
}

impl CancelJobs {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            if self.ids.is_empty() {
                if !self.yes && !self.scope.dry_run {
                    self.confirm(&client).await?;
                }
                return change_matching(context, &client, BulkAction::Cancel, &self.matching, &self.scope).await;
            }
            only_ids(&self.matching)?;
            let body = Body { reason: self.reason.clone(), force: self.force.then_some(true) };
            let cancel = async |id: String| {
                let done = client.cancel(&id, &body).await?;
                Ok(JobVerdict::cancelled(&id, done.state, done.cancel_requested))
            };
            apply_to_each(context, &client, &self.ids, ("cancelled", self.scope.dry_run), cancel).await
        })
    }
}

impl CancelJobs {
    /// Counts the jobs and asks for confirmation: a cancelled job may not be requeueable.
    async fn confirm(&self, client: &Client) -> Result<(), CliError> {
        if !can_ask() {
            return Err(CliError::refused("cannot ask for confirmation: standard input is not a terminal")
                .hint("--yes cancels all matching jobs, --dry-run counts them"));
        }
        let found = count_matching(client, BulkAction::Cancel, &self.matching).await?;
        if found.matched == 0 {
            return Ok(());
        }
        let question = match self.scope.limit {
            Some(limit) if limit <= found.matched => format!("cancel {}?", counted(limit, "job")),
            Some(_) | None if found.more => format!("cancel {} or more jobs?", found.matched),
            Some(_) | None => format!("cancel {}?", counted(found.matched, "job")),
        };
        if ask(&question)? {
            return Ok(());
        }
        Err(CliError::refused("nothing was cancelled: the answer was no"))
    }
}

/// Refuses ids together with a filter: which of them applies would be ambiguous.
pub(super) fn only_ids(matching: &Matching) -> Result<(), CliError> {
    if matching.is_empty() {
        return Ok(());
    }
    Err(CliError::refused("ids and a filter cannot be combined").hint("give ids or a filter"))
}
