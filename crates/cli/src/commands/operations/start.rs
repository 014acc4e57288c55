//! `longshore operations start`

use clap::Args;
use longshore_api::enums::{OperationAction, State};
use longshore_api::operation::{NewOperation, OperationFilter};
use longshore_api::states::States;

use super::{follow, show};
use crate::commands::bulk::Filter;
use crate::commands::parse::{self, counted};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Start an operation on all jobs that match now. It goes on in the server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore operations start requeue -q mail --state dead_letter --canary 5 --wait
  longshore operations start requeue --group 9c2e5f3b7001a8d5 --rate 100
  longshore operations start cancel -q mail --type email.send --dry-run")]
pub(crate) struct StartOperation {
    /// What is done to each job
    #[arg(value_parser = action)]
    action: OperationAction,
    #[command(flatten)]
    filter: Filter,
    /// Jobs in this state; several are separated by commas
    #[arg(short, long, value_delimiter = ',', value_parser = parse::state)]
    state: Vec<State>,
    /// Jobs of this group of dead letters
    #[arg(long, value_name = "ID")]
    group: Option<String>,
    /// Change at most N jobs per second [default: as fast as possible]
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Change N jobs first, and wait until they have ended and a client continues
    #[arg(long, value_name = "N")]
    canary: Option<u32>,
    /// Only count the jobs
    #[arg(long)]
    dry_run: bool,
    /// Wait until the operation no longer runs
    #[arg(long)]
    wait: bool,
}

fn action(text: &str) -> Result<OperationAction, String> {
    let words = || OperationAction::WORDS.join(", ");
    OperationAction::parse(&text.replace('-', "_")).ok_or_else(|| format!("expected one of {}", words()))
}

impl StartOperation {
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        let Filter { queue, job_type, tag, error_code } = self.filter;
        let state = (!self.state.is_empty()).then_some(States(self.state));
        let filter = OperationFilter { queue, state, job_type, tag, error_code, group: self.group };
        let dry_run = self.dry_run.then_some(true);
        let new = NewOperation { action: self.action, filter, rate: self.rate, canary: self.canary, dry_run };
        let client = context.client()?;
        let started = context.call(async { Ok(client.start_operation(&new).await?) })?;
        if self.wait {
            return show::one(context, &follow::until_rest(context, &started.id)?);
        }
        if context.output.json {
            return context.output.json(&started);
        }
        let more = if started.counted { "" } else { " or more" };
        let jobs = format!("{}{more}", counted(started.matched, "job"));
        let what = if self.dry_run { "would be treated" } else { "to treat" };
        context.output.line(&format!("operation {}: {jobs} {what}", started.id))
    }
}
