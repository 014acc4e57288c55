//! `longshore workers`

use clap::{Args, Subcommand};
use longshore_api::enums::WorkerDirective;

use super::age::age_between;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable, join_names};

#[derive(Debug, Subcommand)]
pub(crate) enum WorkersCommand {
    /// List workers that were seen within 24 hours
    #[command(after_help = "\
DIRECTIVE: what the server tells the worker to do (run, quiet, stop). RUNNING: jobs that the worker is
running. WAITING: claims that are waiting for a job. SEEN: time since the last claim or heartbeat of
the worker. TYPES: job types that the worker claims; empty means all.

Examples:
  longshore workers list
  longshore workers list --json | jq -r '.workers[].name'")]
    List,
    /// Ask a worker to finish its jobs and claim no more
    Quiet(WorkerArg),
    /// Ask a worker to finish or release its jobs and exit
    Stop(WorkerArg),
    /// Let a worker claim jobs again
    Resume(WorkerArg),
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArg {
    /// The worker's name
    worker: String,
}

impl WorkersCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List => list(context),
            Self::Quiet(worker) => worker.direct(WorkerDirective::Quiet, context),
            Self::Stop(worker) => worker.direct(WorkerDirective::Stop, context),
            Self::Resume(worker) => worker.direct(WorkerDirective::Run, context),
        }
    }
}

impl WorkerArg {
    fn direct(self, directive: WorkerDirective, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let worker = context.call(async {
            Ok(match directive {
                WorkerDirective::Run => client.resume_worker(&self.worker).await?,
                WorkerDirective::Quiet => client.quiet_worker(&self.worker).await?,
                WorkerDirective::Stop => client.stop_worker(&self.worker).await?,
            })
        })?;
        if context.output.json {
            return context.output.json(&worker);
        }
        let effect = match directive {
            WorkerDirective::Run => "claims jobs again",
            WorkerDirective::Quiet => "finishes its jobs and claims no more",
            WorkerDirective::Stop => "finishes or releases its jobs and exits",
        };
        context.output.line(&format!("worker \"{}\" {effect} ({} running)", worker.name, worker.running))
    }
}

fn list(context: &Context) -> Result<(), CliError> {
    let client = context.client()?;
    if context.output.json {
        let workers = context.call(async { Ok(client.workers().await?) })?;
        return context.output.json(&workers);
    }
    // Ages use the server's clock, which may be virtual.
    let (workers, info) = context.call(async { Ok(tokio::try_join!(client.workers(), client.info())?) })?;
    if workers.workers.is_empty() {
        context.output.info("no worker was seen within 24 hours");
        return Ok(());
    }
    let mut table =
        TextTable::new(&["WORKER", "DIRECTIVE", "RUNNING", "WAITING", "SEEN", "VERSION", "QUEUES", "TYPES"]);
    for worker in &workers.workers {
        table.row(vec![
            worker.name.as_str().into(),
            worker.directive.as_str().into(),
            CellValue::number(worker.running),
            CellValue::number(worker.waiting),
            format!("{} ago", age_between(worker.last_seen_at, info.now)).into(),
            worker.version.as_deref().unwrap_or_default().into(),
            join_names(&worker.queues).into(),
            join_names(&worker.types).into(),
        ]);
    }
    context.output.table(&table)
}
