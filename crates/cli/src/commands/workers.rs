//! `longshore workers`

use clap::Subcommand;

use super::age::age_between;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

#[derive(Debug, Subcommand)]
pub(crate) enum WorkersCommand {
    /// List workers that have claimed from this server
    #[command(after_help = "\
RUNNING: jobs that the worker is running. WAITING: claims that are waiting for a job. SEEN: time
since the last request of the worker.

Examples:
  longshore workers list
  longshore workers list --json | jq -r '.workers[].name'")]
    List,
}

impl WorkersCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List => list(context),
        }
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
        context.output.info("no worker has claimed from this server");
        return Ok(());
    }
    let mut table = TextTable::new(&["WORKER", "RUNNING", "WAITING", "SEEN", "QUEUES"]);
    for worker in &workers.workers {
        table.row(vec![
            worker.name.as_str().into(),
            CellValue::number(worker.running),
            CellValue::number(worker.waiting),
            format!("{} ago", age_between(worker.last_seen_at, info.now)).into(),
            worker.queues.join(", ").into(),
        ]);
    }
    context.output.table(&table)
}
