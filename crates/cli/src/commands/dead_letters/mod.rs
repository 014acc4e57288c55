//! `longshore dead-letters`

use clap::{Args, Subcommand};
use longshore_api::enums::{BulkAction, State};
use longshore_client::JobFilter;

use super::bulk::{BulkScope, Filter, Matching, change_matching};
use super::jobs::{jobs_matching, show_list};
use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetters {
    /// List dead letters, newest first
    List(List),
    /// Bring dead letters back into line
    #[command(after_help = "\
Examples:
  longshore dead-letters requeue --queue reports --error-code timeout --dry-run
  longshore dead-letters requeue --all")]
    Requeue(Change),
    /// Delete dead letters for good
    #[command(after_help = "\
Examples:
  longshore dead-letters purge --type email.send --dry-run
  longshore dead-letters purge --all")]
    Delete(Change),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Jobs of this queue
    #[arg(short, long)]
    queue: Option<String>,
    /// Jobs of this type
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Jobs with this tag: KEY, or KEY:VALUE
    #[arg(long)]
    tag: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

/// Which dead letters. By id: `longshore jobs requeue ID`, `longshore jobs delete ID`.
#[derive(Debug, Args)]
pub(crate) struct Change {
    #[command(flatten)]
    filter: Filter,
    /// All dead letters of all queues
    #[arg(long, required_unless_present_any = ["queue", "job_type", "tag", "error_code"])]
    all: bool,
    #[command(flatten)]
    extent: BulkScope,
}

impl DeadLetters {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List(list) => list.run(context),
            Self::Requeue(change) => change.run(context, BulkAction::Requeue),
            Self::Delete(change) => change.run(context, BulkAction::Delete),
        }
    }
}

impl List {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let filter = JobFilter {
            queue: self.queue,
            states: vec![State::DeadLetter],
            job_type: self.job_type,
            tag: self.tag,
            ..JobFilter::default()
        };
        let client = context.client()?;
        let jobs = context.call(jobs_matching(&client, filter, self.limit))?;
        show_list(context, &jobs)
    }
}

impl Change {
    fn run(self, context: &Context, action: BulkAction) -> Result<(), CliError> {
        if self.all && !self.filter.is_empty() {
            return Err(
                CliError::refused("--all and a filter together are not clear").hint("give the one or the other")
            );
        }
        let client = context.client()?;
        let matching = Matching { filter: self.filter, state: Some(State::DeadLetter) };
        context.call(change_matching(context, &client, action, &matching, &self.extent))
    }
}
