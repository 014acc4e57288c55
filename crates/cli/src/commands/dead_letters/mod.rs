//! `longshore dead-letters`

mod groups;

use clap::{ArgGroup, Args, Subcommand};
use longshore::JobListQuery;
use longshore_api::enums::{BulkAction, State};

use self::groups::GroupDeadLetters;
use super::bulk::{BulkScope, Filter, Matching, change_matching};
use super::jobs::{jobs_matching, show_list};
use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// List dead letters, newest first
    List(ListDeadLetters),
    /// Group dead letters by error code and message
    #[command(after_help = "\
COUNT: dead letters of the group. HOUR: those of the last 60 minutes. LAST: time since the newest ended.
MESSAGE: the message, with ‹n›, ‹id›, ‹text› in place of what varies. Shows the 200 largest groups.

Examples:
  longshore dead-letters groups --queue reports
  longshore dead-letters groups --json | jq -r '.groups[].id'")]
    Groups(GroupDeadLetters),
    /// Requeue dead letters
    #[command(after_help = "\
Examples:
  longshore dead-letters requeue --queue reports --error-code timeout --dry-run
  longshore dead-letters requeue --all")]
    Requeue(ChangeDeadLetters),
    /// Delete dead letters permanently
    #[command(after_help = "\
Examples:
  longshore dead-letters delete --type email.send --dry-run
  longshore dead-letters delete --all")]
    Delete(ChangeDeadLetters),
}

#[derive(Debug, Args)]
pub(crate) struct ListDeadLetters {
    /// Jobs of this queue
    #[arg(short, long)]
    queue: Option<String>,
    /// Jobs of this type
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Jobs with this tag: KEY, or KEY:VALUE
    #[arg(long)]
    tag: Option<String>,
    /// List at most N jobs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

/// Selects dead letters by filter. By id: `longshore jobs requeue ID`, `longshore jobs delete ID`.
#[derive(Debug, Args)]
#[command(group(
    ArgGroup::new("selection").required(true).multiple(true).args(["all", "queue", "job_type", "tag", "error_code"])
))]
pub(crate) struct ChangeDeadLetters {
    #[command(flatten)]
    filter: Filter,
    /// All dead letters of all queues
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    scope: BulkScope,
}

impl DeadLettersCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List(list) => list.run(context),
            Self::Groups(groups) => groups.run(context),
            Self::Requeue(change) => change.run(context, BulkAction::Requeue),
            Self::Delete(change) => change.run(context, BulkAction::Delete),
        }
    }
}

impl ListDeadLetters {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let filter = JobListQuery {
            queue: self.queue,
            states: vec![State::DeadLetter],
            job_type: self.job_type,
            tag: self.tag,
            ..JobListQuery::default()
        };
        let client = context.client()?;
        let jobs = context.call(jobs_matching(&client, filter, self.limit))?;
        show_list(context, &jobs)
    }
}

impl ChangeDeadLetters {
    fn run(self, context: &Context, action: BulkAction) -> Result<(), CliError> {
        if self.all && !self.filter.is_empty() {
            return Err(CliError::refused("--all and a filter cannot be combined").hint("give --all or a filter"));
        }
        let client = context.client()?;
        let matching = Matching { filter: self.filter, state: Some(State::DeadLetter) };
        context.call(change_matching(context, &client, action, &matching, &self.scope))
    }
}
