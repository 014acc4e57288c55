//! `longshore workers`

use clap::Subcommand;

use super::age::age_between;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{Table, Value};

#[derive(Debug, Subcommand)]
pub(crate) enum Workers {
    /// List workers that asked this server for jobs
    #[command(after_help = "\
RUNNING: jobs that the worker holds. WAITING: its claims that wait for a job now. SEEN: how long
ago its last call came.

Examples:
  longshore workers list
  longshore workers list --json | jq -r '.workers[].name'")]
    List,
}

impl Workers {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List => list(context),
        }
    }
}

fn list(context: &Context) -> Result<(), CliError> {
    let client = context.client()?;
    if context.screen.json {
        let workers = context.call(async { Ok(client.workers().await?) })?;
        return context.screen.json(&workers);
    }
    // Ages are counted by the server's clock, which may be virtual.
    let (workers, info) = context.call(async { Ok(tokio::try_join!(client.workers(), client.info())?) })?;
    if workers.workers.is_empty() {
        context.screen.info("no worker has asked this server for jobs");
        return Ok(());
    }
    let mut table = Table::new(&["WORKER", "RUNNING", "WAITING", "SEEN", "QUEUES"]);
    for worker in &workers.workers {
        table.row(vec![
            worker.name.as_str().into(),
            Value::number(worker.running),
            Value::number(worker.waiting),
            format!("{} ago", age_between(worker.last_seen_at, info.now)).into(),
            worker.queues.join(", ").into(),
        ]);
    }
    context.screen.table(&table)
}
