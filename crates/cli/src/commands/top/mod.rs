//! `longshore top`: live figures of a server.
//!
//! - `snapshot.rs`: the figures of one moment
//! - `columns.rs`: columns of the queue table, and which of them fit into a width
//! - `rates.rs`: rates per second and their window
//! - `plain.rs`: one snapshot as tables or JSON
//! - `live.rs`: the live view on a terminal, and its keys

mod columns;
mod live;
mod plain;
mod rates;
mod snapshot;

use clap::Args;
use longshore_api::Duration;

use self::snapshot::Snapshot;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Show live figures of a server: queues, counts, rates, workers. q quits.
#[derive(Debug, Args)]
#[command(after_help = "\
OLDEST is how long the first ready job has been waiting. Rates are jobs per second; the line above
the table names their window. A narrow terminal shows the most important columns; output that is
not a terminal has all.

Examples:
  longshore top
  longshore top --interval 5s
  longshore top --once
  longshore top --once --json")]
pub(crate) struct Top {
    /// Time between two updates
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    interval: Duration,
    /// Print one snapshot as tables; the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
}

impl Top {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        // An unreachable server is reported before the screen is cleared.
        let first = context.call(async { Ok(Snapshot::fetch(&client).await?) })?;
        if self.once || context.output.json || !context.output.terminal {
            return plain::show(context, &first);
        }
        live::run(context, client, first, self.interval.as_std().max(std::time::Duration::from_millis(100)))
    }
}
