//! `longshore jobs cancel`

use clap::Args;
use longshore_api::admin::Cancel as Body;
use longshore_api::enums::BulkAction;
use longshore_client::Client;

use crate::commands::bulk::{BulkScope, Matching, Verdict, apply_to_each, change_matching, count_unfinished};
use crate::context::Context;
use crate::terminal::confirm::{ask, can_ask};
use crate::terminal::error::CliError;

/// End jobs that have not ended: some by id, or all that match.
#[derive(Debug, Args)]
#[command(after_help = "\
A running job is asked to stop and its worker is told at its next heartbeat, unless the queue
cancels at once or --force is given.

A filter may match many jobs: the command counts them and asks before it cancels them. Scripts
answer with --yes; without a terminal and without --yes nothing is cancelled.

Examples:
  longshore jobs cancel 0b6f…
  longshore jobs cancel --queue reports --state delayed --dry-run
  longshore jobs cancel --queue reports --yes")]
pub(crate) struct Cancel {
    /// Ids of jobs
    #[arg(value_name = "ID", required_unless_present_any = ["queue", "state", "job_type", "tag", "error_code"])]
    ids: Vec<String>,
    /// Kept with the job
    #[arg(long, requires = "ids")]
    reason: Option<String>,
    /// At once, also a job that runs
    #[arg(long, requires = "ids")]
    force: bool,
    /// Cancel all that match without asking
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    matching: Matching,
    #[command(flatten)]
    extent: BulkScope,
}

impl Cancel {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        context.call(async {
            if self.ids.is_empty() {
                if !self.yes && !self.extent.dry_run {
                    self.confirm(&client).await?;
                }
                return change_matching(context, &client, BulkAction::Cancel, &self.matching, &self.extent).await;
            }
            only_ids(&self.matching)?;
            let body = Body { reason: self.reason.clone(), force: self.force.then_some(true) };
            let cancel = async |id: String| {
                let done = client.cancel(&id, &body).await?;
                Ok(Verdict::cancelled(&id, done.state, done.cancel_requested))
            };
            apply_to_each(context, &client, &self.ids, ("cancelled", self.extent.dry_run), cancel).await
        })
    }
}

impl Cancel {
    /// Counts what matches, and asks. A job that was cancelled by mistake may have to be submitted anew.
    async fn confirm(&self, client: &Client) -> Result<(), CliError> {
        if !can_ask() {
            return Err(CliError::refused("a cancel by filter asks first, and standard input is not a terminal")
                .hint("--yes cancels all that match, --dry-run only counts them"));
        }
        let found = count_unfinished(client, BulkAction::Cancel, &self.matching).await?;
        if found.matched == 0 {
            return Ok(());
        }
        let question = match self.extent.limit {
            Some(limit) if limit <= found.matched => format!("cancel {limit} jobs?"),
            Some(_) | None if found.more => format!("cancel {} or more jobs?", found.matched),
            Some(_) | None => format!("cancel {} jobs?", found.matched),
        };
        if ask(&question)? {
            return Ok(());
        }
        Err(CliError::refused("nothing was cancelled: the answer was no"))
    }
}

/// Ids and a filter together would leave open which of them counts.
pub(super) fn only_ids(matching: &Matching) -> Result<(), CliError> {
    if matching.is_empty() {
        return Ok(());
    }
    Err(CliError::refused("ids and a filter together are not clear").hint("give the one or the other"))
}
